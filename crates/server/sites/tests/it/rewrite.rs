//! Rewrite rules of sites and locations.

use apus_files::Files;
use apus_http::{ServiceFactory, StatusCode};
use apus_sites::{
    FileCondition, InvalidRewrite, Location, LocationSettings, ReturnHandler, RewriteFlag,
    RewriteRule, Site,
};

use apus_testkit::{echo, get};

fn rule(pattern: &str, replacement: &str, flag: RewriteFlag) -> RewriteRule {
    RewriteRule::new(pattern, replacement, flag).unwrap()
}

fn location(pattern: &str, name: &'static str, rules: Vec<RewriteRule>) -> Location {
    let settings = rules
        .into_iter()
        .fold(LocationSettings::new(), LocationSettings::rewrite);
    Location::service(pattern.parse().unwrap(), name, echo(name)).settings(settings)
}

fn site(rules: Vec<RewriteRule>) -> Site {
    Site::new("a").settings(
        rules
            .into_iter()
            .fold(LocationSettings::new(), LocationSettings::rewrite),
    )
}

#[test]
fn captures_and_query_make_the_new_target() {
    let site = site(vec![
        rule(
            "^/u/([^/]+)/(?<page>\\d+)$",
            "/user?name=$1&page=$page",
            RewriteFlag::Last,
        ),
        rule("^/drop/(.*)$", "/kept/$1?", RewriteFlag::Last),
        rule("^/own/(.*)$", "/kept?a=$1?", RewriteFlag::Last),
    ])
    .location(location("/", "x", vec![]));
    let service = site.service();
    for (from, to) in [
        ("/u/ann/3", "x /user?name=ann&page=3"),
        ("/u/ann/3?q=1", "x /user?name=ann&page=3&q=1"),
        ("/drop/a?q=1", "x /kept/a"),
        ("/own/a?q=1", "x /kept?a=a"),
        ("/other?q=1", "x /other?q=1"),
    ] {
        assert_eq!(get(from).of(&service).text(), to, "{from}");
    }
}

#[test]
fn a_captured_question_mark_starts_no_query() {
    let site = site(vec![rule("^/a/(.*)$", "/b/$1", RewriteFlag::Last)]).location(location(
        "/",
        "x",
        vec![],
    ));
    assert_eq!(
        get("/a/c%3Fd=e%20%C3%A9").to(&site).text(),
        "x /b/c%3Fd=e%20%C3%A9"
    );
}

#[test]
fn a_captured_ampersand_adds_no_field_to_the_query() {
    let site = site(vec![rule("^/u/(.*)$", "/user?name=$1", RewriteFlag::Last)])
        .location(location("/", "x", vec![]));
    assert_eq!(
        get("/u/a&admin=1+2").to(&site).text(),
        "x /user?name=a%26admin%3D1%2B2"
    );
}

#[test]
fn a_capture_cannot_make_a_redirect_name_another_host() {
    let site =
        site(vec![rule("^/r(.*)$", "/$1", RewriteFlag::Redirect)]).location(Location::respond(
            "~ ^/back(.*)$".parse().unwrap(),
            ReturnHandler::redirect(StatusCode::FOUND, "$1").unwrap(),
        ));
    let service = site.service();
    let reply = get("/r/example.org").of(&service);
    assert_eq!(reply.field("location"), Some("/example.org"));
    let reply = get("/back//example.org").of(&service);
    assert_eq!(reply.field("location"), Some("/example.org"));
}

#[test]
fn last_selects_the_location_again_and_break_keeps_it() {
    let site = Site::new("a")
        .location(location(
            "/from/",
            "from",
            vec![
                rule("^/from/last/(.*)$", "/to/$1", RewriteFlag::Last),
                rule("^/from/break/(.*)$", "/to/$1", RewriteFlag::Break),
                rule("^/from/on/(.*)$", "/from/twice/$1", RewriteFlag::Continue),
                rule("^/from/twice/(.*)$", "/to/2/$1", RewriteFlag::Continue),
            ],
        ))
        .location(location("/to/", "to", vec![]));
    let service = site.service();
    for (from, to) in [
        ("/from/last/x", "to /to/x"),
        ("/from/break/x", "from /to/x"),
        ("/from/on/x", "to /to/2/x"),
        ("/from/none", "from /from/none"),
    ] {
        assert_eq!(get(from).of(&service).text(), to, "{from}");
    }
}

#[test]
fn redirects_leave_the_site() {
    let site = site(vec![
        rule("^/r/(.*)$", "/new/$1", RewriteFlag::Redirect),
        rule("^/p/(.*)$", "/new/$1", RewriteFlag::Permanent),
        rule("^/h/(.*)$", "https://example.org/$1", RewriteFlag::Last),
        rule("^/s/(.*)$", "$scheme://$host/$1", RewriteFlag::Permanent),
    ])
    .location(location("/", "x", vec![]));
    let service = site.service();
    for (from, status, to) in [
        ("/r/a?q", 302, "/new/a?q"),
        ("/p/a%20b", 301, "/new/a%20b"),
        ("/h/a", 302, "https://example.org/a"),
        ("/s/a", 301, "http://example.com/a"),
    ] {
        let reply = get(from).of(&service);
        assert_eq!(
            (reply.status, reply.field("location")),
            (status, Some(to)),
            "{from}"
        );
    }
}

#[test]
fn a_captured_line_break_never_reaches_a_field() {
    let site = site(vec![rule("^/r/(.*)$", "/$1", RewriteFlag::Redirect)]).location(location(
        "/",
        "x",
        vec![],
    ));
    assert_eq!(get("/r/a%0d%0aset-cookie:x").to(&site).status, 400);
}

#[test]
fn conditions_test_what_is_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    std::fs::create_dir(folder.path().join("dir")).unwrap();
    let when =
        |rule: RewriteRule, condition: &str| rule.when(condition.parse::<FileCondition>().unwrap());
    let to = |name: &str| rule("^(.*)$", &format!("/{name}/$1?"), RewriteFlag::Last);
    let site = |condition: &str| {
        Site::new("a")
            .settings(
                LocationSettings::new()
                    .root(folder.path())
                    .rewrite(when(to("hit"), condition)),
            )
            .location(location("/", "x", vec![]))
    };
    for (condition, path, hit) in [
        ("-f $request_filename", "/file", true),
        ("-f $request_filename", "/dir", false),
        ("-d $request_filename", "/dir", true),
        ("-d $request_filename", "/file", false),
        ("-e $document_root$uri", "/dir", true),
        ("-e $document_root$uri", "/none", false),
        ("!-e $request_filename", "/none", true),
        ("!-f $request_filename", "/%66ile", false),
        ("!-d $request_filename", "/dir", false),
    ] {
        let reply = get(path).to(&site(condition));
        assert_eq!(reply.text().contains("/hit/"), hit, "{condition} {path}");
    }
    for text in ["", "-f", "-x /a", "-f $nope", "!! /a"] {
        assert!(text.parse::<FileCondition>().is_err(), "{text}");
    }
}

#[test]
fn the_file_of_a_path_is_that_of_the_alias() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("there"), "there").unwrap();
    std::fs::write(folder.path().join("instead"), "instead").unwrap();
    let missing = rule("^/media/", "/media/instead", RewriteFlag::Break)
        .when("!-f $request_filename".parse().unwrap());
    let files = Files::new(folder.path()).strip_prefix("/media/");
    let site = Site::new("a").location(
        Location::files("/media/".parse().unwrap(), files)
            .settings(LocationSettings::new().root(folder.path()).rewrite(missing)),
    );
    assert_eq!(get("/media/there").to(&site).text(), "there");
    assert_eq!(get("/media/none").to(&site).text(), "instead");
}

#[test]
fn all_conditions_have_to_hold() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("dir")).unwrap();
    let front = rule("^", "/index.php?", RewriteFlag::Last)
        .when("!-f $request_filename".parse().unwrap())
        .when("!-d $request_filename".parse().unwrap());
    let site = Site::new("a")
        .settings(LocationSettings::new().root(folder.path()).rewrite(front))
        .location(location("/", "x", vec![]));
    assert_eq!(get("/dir").to(&site).text(), "x /dir");
    assert_eq!(get("/page").to(&site).text(), "x /index.php");
}

#[test]
fn a_loop_of_rules_ends_with_an_error() {
    let site = Site::new("a")
        .location(location(
            "/a/",
            "a",
            vec![rule("^/a/", "/b/", RewriteFlag::Last)],
        ))
        .location(location(
            "/b/",
            "b",
            vec![rule("^/b/", "/a/", RewriteFlag::Last)],
        ));
    assert_eq!(get("/a/").to(&site).status, 500);
}

#[test]
fn a_rule_cannot_lead_out_of_the_root() {
    let site = site(vec![rule("^/a/(.*)$", "/../$1", RewriteFlag::Last)]).location(location(
        "/",
        "x",
        vec![],
    ));
    assert_eq!(get("/a/etc").to(&site).status, 400);
}

#[test]
fn refuses_rules_that_cannot_work() {
    for (pattern, replacement) in [("(", "/"), ("^", "relative"), ("^", "/$1"), ("^", "/$nope")] {
        assert!(
            RewriteRule::new(pattern, replacement, RewriteFlag::Last).is_err(),
            "{pattern} {replacement}"
        );
    }
    assert!(matches!(
        RewriteRule::new("^", "index.php", RewriteFlag::Last),
        Err(InvalidRewrite::NotAbsolute)
    ));
}

#[test]
fn a_rewrite_of_the_site_may_lead_to_an_internal_location() {
    for flag in [RewriteFlag::Last, RewriteFlag::Break, RewriteFlag::Continue] {
        let site = site(vec![rule("^/old$", "/internal/new", flag)])
            .location(location("/internal/", "inside", vec![]).internal());
        let service = site.service();
        assert_eq!(
            get("/old").of(&service).text(),
            "inside /internal/new",
            "{flag:?}"
        );
        // Neither the path itself nor a redirect to it.
        assert_eq!(get("/internal/new").of(&service).status, 404);
    }
    let redirect = vec![rule("^/old$", "/internal/new", RewriteFlag::Redirect)];
    let site = site(redirect).location(location("/internal/", "inside", vec![]).internal());
    let reply = get("/old").to(&site);
    assert_eq!(
        (reply.status, reply.field("location")),
        (302, Some("/internal/new"))
    );
    assert_eq!(get("/internal/new").to(&site).status, 404);
    // A rule that leaves the path as it is opens nothing.
    let unchanged = vec![rule("^/other$", "/x", RewriteFlag::Break)];
    let site = self::site(unchanged).location(location("/internal/", "inside", vec![]).internal());
    assert_eq!(get("/internal/new").to(&site).status, 404);
}
