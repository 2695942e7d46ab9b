//! Maintenance of a site.

use std::time::{Duration, SystemTime};

use apus_http::{HeaderValue, StatusCode};
use apus_sites::{
    ErrorPage, FieldChange, Location, LocationSettings, Maintenance, MaintenanceState,
    MaintenanceSwitch, ReturnHandler, Site, Sites,
};
use apus_testkit::{Reply, ask, get};

fn responds(path: &str, text: &str) -> Location {
    let handler =
        ReturnHandler::text(StatusCode::OK, HeaderValue::from_static("text/plain"), text).unwrap();
    Location::respond(path.parse().unwrap(), handler)
}

fn site(maintenance: Maintenance) -> Site {
    Site::new("a")
        .maintenance(maintenance)
        .settings(LocationSettings::new().response_field(FieldChange::set("x-site", "a").unwrap()))
        .location(responds("/", "served"))
        .location(responds("= /sorry", "sorry"))
}

fn status(reply: &Reply) -> u16 {
    reply.status
}

#[test]
fn requests_get_503_with_retry_after_and_the_fields_of_the_site() {
    let site = site(Maintenance::new());
    for reply in [
        get("/").to(&site),
        get("/any?query").to(&site),
        ask("POST", "/").body("form").to(&site),
    ] {
        assert_eq!(status(&reply), 503);
        assert_eq!(reply.field("retry-after"), Some("300"));
        assert_eq!(reply.field("x-site"), Some("a"));
        assert_eq!(reply.text(), "503 Service Unavailable\n");
    }
    let browser = get("/").with("accept", "text/html").to(&site);
    assert_eq!(
        browser.field("content-type"),
        Some("text/html; charset=utf-8")
    );
    let chinese = get("/")
        .with("accept", "text/html")
        .with("accept-language", "zh-CN")
        .to(&site);
    assert!(browser.text().contains("503") && chinese.text().contains("503"));
}

#[test]
fn maintenance_ends_at_its_time() {
    let at = |end: SystemTime| {
        let maintenance = Maintenance::new().state(MaintenanceState::Until(end));
        get("/").to(&site(maintenance))
    };
    let now = SystemTime::now();
    assert_eq!(status(&at(now)), 200);
    assert_eq!(status(&at(now - Duration::from_secs(1))), 200);
    assert_eq!(status(&at(SystemTime::UNIX_EPOCH)), 200);
    let later = at(now + Duration::from_secs(1000));
    assert_eq!(status(&later), 503);
    let wait: u64 = later.field("retry-after").unwrap().parse().unwrap();
    assert!((900..=1000).contains(&wait), "{wait}");
}

#[test]
fn the_networks_of_operators_pass() {
    let allow = [
        "10.0.0.0/8".parse().unwrap(),
        "2001:db8::/32".parse().unwrap(),
    ];
    let site = site(Maintenance::new().allow(allow));
    let from = |address: &str| {
        status(
            &get("/")
                .peer(address.parse::<std::net::SocketAddr>().unwrap())
                .to(&site),
        )
    };
    assert_eq!(from("10.255.255.255:1"), 200);
    assert_eq!(from("11.0.0.0:1"), 503);
    assert_eq!(from("9.255.255.255:1"), 503);
    assert_eq!(from("[2001:db8::1]:1"), 200);
    assert_eq!(from("[::ffff:10.0.0.1]:1"), 200);
    assert_eq!(from("[2001:db9::1]:1"), 503);
    // The client behind a proxy counts, and not the proxy.
    let sites = Sites::new()
        .trusted_proxies(apus_http::TrustedProxies::new(["127.0.0.1"
            .parse()
            .unwrap()]))
        .site(site)
        .unwrap();
    let through = |proxy: &str, client: &str| {
        let request = get("/").peer(proxy.parse::<std::net::SocketAddr>().unwrap());
        status(&request.with("x-forwarded-for", client).to(&sites))
    };
    assert_eq!(through("127.0.0.1:1", "10.1.1.1"), 200);
    assert_eq!(through("127.0.0.1:1", "192.0.2.1"), 503);
    assert_eq!(through("192.0.2.1:1", "10.1.1.1"), 503);
    assert_eq!(through("10.1.1.1:1", "192.0.2.1"), 200);
}

#[test]
fn challenges_of_acme_pass_and_no_other_path_does_by_them() {
    let site = site(Maintenance::new());
    let of = |path: &str| status(&get(path).to(&site));
    assert_eq!(of("/.well-known/acme-challenge/token"), 200);
    assert_eq!(of("/.well-known/%61cme-challenge/token"), 200);
    for path in [
        "/.well-known/acme-challenge",
        "/.well-known/acme-challenge/../../secret",
        "/.well-known/acme-challenge/%2e%2e/x",
        "/.well-known/acme-challenge%2f..%2f..%2fsecret",
        "/a/.well-known/acme-challenge/token",
    ] {
        assert_ne!(of(path), 200, "{path}");
    }
}

#[test]
fn the_page_is_its_own_or_the_error_page_of_the_site_or_the_default() {
    let page = get("/").to(&site(Maintenance::new().page("/sorry")));
    assert_eq!((page.status, page.text()), (503, "sorry"));
    assert_eq!(page.field("retry-after"), Some("300"));
    // The page itself is a path like others.
    let direct = get("/sorry").to(&site(Maintenance::new().page("/sorry")));
    assert_eq!((direct.status, direct.text()), (503, "sorry"));
    let missing = site(Maintenance::new().page("/none")).location(Location::respond(
        "= /none".parse().unwrap(),
        ReturnHandler::status(StatusCode::NOT_FOUND),
    ));
    assert_eq!(get("/").to(&missing).text(), "503 Service Unavailable\n");
    let of_site = LocationSettings::new().error_page(
        StatusCode::SERVICE_UNAVAILABLE,
        ErrorPage::Path("/sorry".into()),
    );
    let of_site = site(Maintenance::new()).settings(of_site);
    assert_eq!(get("/").to(&of_site).text(), "sorry");
}

#[test]
fn a_switch_takes_precedence_until_it_is_unset() {
    let switch = MaintenanceSwitch::default();
    let with = |state| site(Maintenance::new().state(state).switch(&switch));
    let (on, off) = (with(MaintenanceState::On), with(MaintenanceState::Off));
    let both = || (status(&get("/").to(&on)), status(&get("/").to(&off)));
    assert_eq!(both(), (503, 200));
    switch.set(Some(MaintenanceState::On));
    assert_eq!(both(), (503, 503));
    switch.set(Some(MaintenanceState::Off));
    assert_eq!(both(), (200, 200));
    let past = SystemTime::now() - Duration::from_secs(1);
    switch.set(Some(MaintenanceState::Until(past)));
    assert_eq!(both(), (200, 200));
    let future = SystemTime::now() + Duration::from_secs(60);
    switch.set(Some(MaintenanceState::Until(future)));
    assert_eq!(both(), (503, 503));
    switch.set(None);
    assert_eq!(both(), (503, 200));
}
