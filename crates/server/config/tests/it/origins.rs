//! Reading configurations of reverse proxies: groups of origins, and the locations that use them.

use apus_client::{Address, ResponseRules};
use apus_config::HandlerPlan;
use apus_proxy::{HostHeader, PathForm, ProxySettings};
use apus_upstream::plan::{GroupPlan, NodePlan, NodeTarget};

use crate::documents::{findings, folder, parse_in};

/// A file with a location `/a` or a group, in which `SITE` has the upstream `http://[::1]:1` in place of
/// a folder, and what is found wrong with it.
const MISTAKES_ABOUT_ORIGINS: &[(&str, &str)] = &[
    (
        "SITE\n[[sites.upstreams]]\nname = \"app\"\nnodes = \"[::1]:1\"\n[[sites.locations]]\npath = \"/a\"\nupstream = \"ap\"\n",
        "9:12 the site has no group of origins `ap`; expected the name of one of its `upstreams`, or a URL; did you mean \"app\"?",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\nupstream = \"app\"\n",
        "6:12 the site has no group of origins `app`; expected the name of one of its `upstreams`, or a URL; add [[sites.upstreams]]",
    ),
    (
        "SITE\n[[sites.upstreams]]\nname = \"app\"\nnodes = \"[::1]:1\"\n",
        "5:8 nothing uses the group `app`; its nodes get no requests",
    ),
    (
        "SITE\n[[sites.upstreams]]\nname = \"app\"\nnodes = \"[::1]:1\"\n[[sites.upstreams]]\nname = \"app\"\nnodes = \"[::1]:2\"\n[[sites.locations]]\npath = \"/a\"\nupstream = \"app\"\n",
        "8:8 two groups of the site are called `app`",
    ),
    (
        "SITE\n[[sites.upstreams]]\nname = \"a b\"\nnodes = \"[::1]:1\"\n",
        "5:8 `a b` is not a name of letters, digits",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\nupstream = \"127.0.0.1:3000\"\n",
        "6:12 `127.0.0.1:3000`: write \"http://127.0.0.1:3000\"",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\nupstream = \"ws://a\"\n",
        "6:12 `ws://a`: no origin has the scheme ws",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"~ /a\"\nupstream = \"http://a/\"\n",
        "6:12 a path in `upstream`, in a location with a regular expression",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\nupstream = \"http://a\"\nlisting = true\n",
        "7:11 `listing` has no effect; the handler of this location is `reverse_proxy`",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\nupstream = \"http://a\"\nreturn = { status = 404 }\n",
        "6:12 `upstream` has no effect; the handler of this location is `return`",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\nroot = \"public\"\nproxy = {}\n",
        "7:9 `proxy` has no effect; the handler of this location is `static`",
    ),
    (
        "SITE\nroot = \"public\"\n",
        "4:8 `root` has no effect; the site sends requests to its `upstream`",
    ),
    (
        "SITE\nindex = \"a.html\"\n",
        "4:9 `index` has no effect; the site sends requests to its `upstream`",
    ),
    (
        "SITE\nreturn = { status = 404 }\n",
        "3:12 `upstream` has no effect; the site has a `return`",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"public\"\nproxy = {}\n",
        "4:9 `proxy` has no effect; neither the site nor a location has an `upstream`",
    ),
    (
        "[[sites]]\nlisten = 80\nlocations = [{ path = \"/a\", handler = \"reverse_proxy\" }]\n",
        "3:39 the handler `reverse_proxy` has no origins; expected the key `upstream`",
    ),
    (
        "SITE\nproxy.host = \"a b\"\n",
        "4:14 `a b` is not `$http_host`, `raw`, `$proxy_host`, or a host",
    ),
    (
        "[[sites]]\nlisten = 80\nupstream = \"unix:/a\"\nproxy.host = \"$proxy_host\"\n",
        "4:14 `$proxy_host` without a URL whose host it could be",
    ),
    (
        "SITE\nproxy.replace_types = \"text/css\"\n",
        "4:23 `replace_types` has no effect; there is no `replace`",
    ),
    (
        "SITE\nproxy.cookies.domains = { internal = \"a;b\" }\n",
        "4:38 `a;b` is not a domain, or an empty string",
    ),
    (
        "SITE\nproxy.hold_request = { folder = \"nothere\" }\n",
        "4:33 there is no folder nothere",
    ),
    (
        "SITE\nproxy.hold_request = { folder = \"other\", disk = 0 }\n",
        "4:33 `folder` has no effect",
    ),
    (
        "SITE\nproxy.hold_request = 5\n",
        "4:22 expected true, false, or a table, found a number",
    ),
    (
        "SITE\nproxy.mirror = \"other\"\n",
        "4:16 the site has no group of origins `other`",
    ),
    (
        "SITE\nproxy.mirror = { upstream = \"http://b/path\" }\n",
        "4:29 a path in the `upstream` of `mirror`",
    ),
    (
        "SITE\nproxy.mirror = { percent = 5 }\n",
        "4:16 the key `upstream` is missing",
    ),
    (
        "SITE\nproxy.mirror = true\n",
        "4:16 expected a group, a URL, a table, or false, found a boolean",
    ),
    ("GROUP\nnodes = []\n", "6:9 the group has no nodes"),
    (
        "GROUP\nnodes = \"app\"\n",
        "6:9 `app`: the port is missing; expected \"host:port\"",
    ),
    (
        "GROUP\nnodes = [\"[::1]:1\", \"[::1]:1\"]\n",
        "6:21 two nodes of the group are called `[::1]:1`",
    ),
    (
        "GROUP\nnodes = [\"https://[::1]:1\", \"http://[::1]:2\"]\n",
        "6:29 nodes with and without TLS in one group",
    ),
    (
        "GROUP\nnodes = [\"http://[::1]:1\"]\ntls = { verify = false }\n",
        "6:10 nodes with and without TLS in one group",
    ),
    (
        "GROUP\nnodes = { addr = \"[::1]:1\", down = true, drain = true }\n",
        "6:50 `drain` and `down` exclude each other",
    ),
    (
        "GROUP\nnodes = \"unix:a.sock\"\ntls = { verify = false }\n",
        "7:7 no name that certificates have to be for",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\ntls = { verify = false, ca = \"cert.pem\" }\n",
        "7:30 `ca` has no effect",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\ntls = { ca = \"key.pem\" }\n",
        "7:14 there is no certificate in it",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\ntls = { ca = \"cert.pem\", cert = \"cert.pem\" }\n",
        "7:33 `cert` and `key` belong together",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\ntls = { ca = \"cert.pem\", server_name = \"a b\" }\n",
        "7:7 `a b` is no server name",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\nhash = \"uri\"\n",
        "7:8 `hash` has no effect",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\nstrategy = \"hash\"\n",
        "7:12 the strategy `hash` has no key",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\nstrategy = \"least_con\"\n",
        "7:12 `least_con` is not a strategy; expected \"round_robin\" or \"weighted\" or \"least_conn\"",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\nqueue.max = 5\n",
        "7:1 `queue` has no effect; no node of the group has `max_conns`",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\ndns.ipv6 = false\n",
        "7:1 `dns` has no effect",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\ncheck = { type = \"tcp\", path = \"/\" }\n",
        "7:32 `path` has no effect; it is for checks of the type `http`",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\nbreaker = { open_for = 100 }\n",
        "7:24 `max_open_for` is less than `open_for`; `open_for` is 100 s, `max_open_for` 60 s",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\nejection = { rate = false, consecutive = 0 }\n",
        "7:21 `ejection` has no effect",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\nconnect_timeout = 0\n",
        "7:19 the number is out of range; expected a number of seconds above 0",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\ntls_timeout = 5\n",
        "7:15 `tls_timeout` has no effect",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\nprotocol = \"h3\"\n",
        "6:9 HTTP/3 has no clear text; expected nodes as \"https://host:port\", or a table `tls` in the group",
    ),
    (
        "GROUP\nnodes = \"unix:/a\"\nprotocol = \"h3\"\ntls = { verify = false, server_name = \"a\" }\n",
        "6:9 HTTP/3 has no Unix sockets; expected a host and a UDP port",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\nprotocol = \"h3\"\ntls = { verify = false }\nsend_proxy = \"v1\"\n",
        "9:14 `send_proxy` has no effect; over HTTP/3, requests of many clients share a connection",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\nprotocol = \"h3\"\ntls = { verify = false }\ntls_timeout = 5\n",
        "9:15 `tls_timeout` has no effect; the handshake of QUIC includes the TLS handshake",
    ),
    (
        "GROUP\nnodes = \"h3://[::1]:1\"\n",
        "6:9 `h3://[::1]:1`: no node has the scheme h3; say what is spoken with `protocol`",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\nretry = { tries = 1, on = 503 }\n",
        "7:27 `on` has no effect; nothing is tried again",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\nsticky = { same_site = \"none\" }\n",
        "7:24 `same_site = \"none\"` without `secure`; browsers refuse such a cookie",
    ),
    (
        "GROUP\nnodes = \"[::1]:1\"\nretry.on = \"fault\"\n",
        "7:12 `fault` is not a status from 200 to 599",
    ),
];

#[test]
fn reports_each_mistake_about_origins_with_its_position() {
    let site = "[[sites]]\nlisten = 80\nupstream = \"http://[::1]:1\"\n";
    let group = "[[sites]]\nlisten = 80\nupstream = \"app\"\n[[sites.upstreams]]\nname = \"app\"\n";
    let mut failed = Vec::new();
    for (text, expected) in MISTAKES_ABOUT_ORIGINS {
        let text = text.replace("SITE\n", site).replace("GROUP\n", group);
        let found = findings(&text);
        if found.len() != 1 || !found.iter().all(|found| found.starts_with(expected)) {
            failed.push(format!(
                "{text}\n  expected {expected:?}\n  found    {found:#?}"
            ));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn a_group_with_a_mistake_is_not_missed_where_it_is_named() {
    let text = "[[sites]]\nlisten = 80\nupstream = \"app\"\n[[sites.upstreams]]\nname = \"app\"\n";
    assert_eq!(findings(text).len(), 1);
}

#[test]
fn the_defaults_of_a_group_are_those_of_the_plan() {
    let folder = folder();
    let text = "[[sites]]\nname = \"one\"\nlisten = 80\nupstream = \"app\"\n\
                [[sites.upstreams]]\nname = \"app\"\nnodes = [\"127.0.0.1:1\"]\n";
    let plan = parse_in(folder.path(), text).unwrap();
    let address = Address::Ip("127.0.0.1:1".parse().unwrap());
    let node = NodePlan::new("127.0.0.1:1", NodeTarget::Address(address));
    let expected = GroupPlan::new("one/app", vec![node]);
    assert_eq!(
        format!("{:?}", plan.upstreams[0].group),
        format!("{expected:?}")
    );
    let Some(HandlerPlan::Proxy(proxy)) = &plan.sites[0].handler else {
        panic!("the site is a proxy");
    };
    let expected = ProxySettings {
        site: "one".into(),
        ..ProxySettings::default()
    };
    assert_eq!(
        format!("{:?}", proxy.settings).replace("[\"text/html\"]", "[]"),
        format!("{expected:?}")
    );
}

/// The upstream and what is done with the path, by the place that has them.
fn proxies(text: &str) -> Vec<String> {
    let folder = folder();
    let plan = match parse_in(folder.path(), text) {
        Ok(plan) => plan,
        Err(mistakes) => panic!("{mistakes}"),
    };
    plan.sites[0]
        .handlers()
        .map(|handler| match handler {
            HandlerPlan::Proxy(proxy) => {
                let settings = &proxy.settings;
                let path = settings.path.as_ref();
                let path = path.map_or("as it is".to_owned(), |p| {
                    format!("{} to {}", p.strip, p.put)
                });
                format!("{} {} {path}", proxy.upstream, settings.scheme)
            }
            HandlerPlan::Files(_) => "files".to_owned(),
            HandlerPlan::Php(php) => format!("{} php", php.upstream),
            HandlerPlan::Return(_) => "return".to_owned(),
        })
        .collect()
}

#[test]
fn locations_have_the_origins_of_their_site_unless_they_set_others() {
    let text = "[[sites]]\nname = \"a\"\nlisten = 80\nroot = \"other\"\nupstream = \"http://app:80/v1/\"\n\
                [[sites.upstreams]]\nname = \"api\"\nnodes = \"unix:api.sock\"\n\
                tls = { verify = false, server_name = \"api\" }\n\
                [[sites.locations]]\npath = \"/more/\"\n\
                [[sites.locations]]\npath = \"/own/\"\nroot = \"public\"\n\
                [[sites.locations]]\npath = \"/files/\"\nhandler = \"static\"\n\
                [[sites.locations]]\npath = \"/gone/\"\nreturn = { status = 410 }\n\
                [[sites.locations]]\npath = \"^~ /api/\"\nupstream = \"api/\"\n\
                [[sites.locations]]\npath = \"~ /raw\"\nupstream = \"api\"\n";
    assert_eq!(
        proxies(text),
        [
            "http://app:80 http / to /v1/",
            "http://app:80 http / to /v1/",
            "files",
            "files",
            "return",
            "a/api https /api/ to /",
            "a/api https as it is",
        ]
    );
}

#[test]
fn keys_of_a_locations_proxy_override_those_of_its_site() {
    let folder = folder();
    let text = "[[sites]]\nlisten = 80\nupstream = \"https://App:8443\"\n\
                [sites.proxy]\nhost = \"$proxy_host\"\nvia = false\nhide = \"X-A\"\nhold_request = true\n\
                mirror = \"x\"\n\
                [[sites.locations]]\npath = \"/a/\"\n[sites.locations.proxy]\nvia = true\nhide = []\n\
                hold_request = false\nmirror = false\n[[sites.upstreams]]\nname = \"x\"\nnodes = \"a:1\"\n";
    // The system's authorities are not always there.
    let text = text.replace("https://App:8443", "http://App:8443");
    let plan = parse_in(folder.path(), &text).unwrap();
    let settings = |handler: &HandlerPlan| match handler {
        HandlerPlan::Proxy(proxy) => proxy.settings.clone(),
        _ => panic!("it is a proxy"),
    };
    let site = settings(plan.sites[0].handler.as_ref().unwrap());
    let location = settings(&plan.sites[0].locations[0].handler);
    assert_eq!(site.host, HostHeader::Fixed("App:8443".into()));
    assert_eq!(location.host, site.host);
    assert_eq!(
        (site.forwarding.via, location.forwarding.via),
        (false, true)
    );
    assert_eq!((site.hidden.len(), location.hidden.len()), (1, 0));
    assert!(site.hold_request.is_some() && location.hold_request.is_none());
    assert!(site.mirror.is_some() && location.mirror.is_none());
    assert_eq!(plan.warnings.warnings(), 0);
}

#[test]
fn sites_with_the_same_url_share_its_group() {
    let folder = folder();
    let site = |name: &str| {
        format!("[[sites]]\nserver_name = \"{name}\"\nlisten = 80\nupstream = \"http://app:80\"\n")
    };
    let plan = parse_in(folder.path(), &(site("a") + &site("b"))).unwrap();
    assert_eq!(plan.upstreams.len(), 1);
}

#[test]
fn the_path_and_the_host_of_requests_are_those_of_the_client_by_choice() {
    let folder = folder();
    for (keys, path_form, host) in [
        ("", PathForm::Normalized, HostHeader::Client),
        (
            "path = \"normalized\"\nhost = \"$http_host\"",
            PathForm::Normalized,
            HostHeader::Client,
        ),
        (
            "path = \"raw\"\nhost = \"raw\"",
            PathForm::Raw,
            HostHeader::AsSent,
        ),
    ] {
        let text = format!(
            "[[sites]]\nlisten = 80\nupstream = \"http://app:80\"\n[sites.proxy]\n{keys}\n"
        );
        let plan = parse_in(folder.path(), &text).unwrap();
        let Some(HandlerPlan::Proxy(proxy)) = &plan.sites[0].handler else {
            panic!("it is a proxy");
        };
        assert_eq!(proxy.settings.path_form, path_form, "{keys}");
        assert_eq!(proxy.settings.host, host, "{keys}");
    }
    let text =
        "[[sites]]\nlisten = 80\nupstream = \"http://app:80\"\n[sites.proxy]\npath = \"cooked\"\n";
    let found = findings(text);
    assert!(found[0].contains("is not a form of paths"), "{found:?}");
}

#[test]
fn a_prefix_that_ends_inside_a_segment_is_a_warning_if_the_upstream_has_a_path() {
    let folder = folder();
    for (pattern, upstream, label) in [
        ("/w", "http://app:80/w1", Some("becomes `/w1x`")),
        ("^~ /w", "http://app:80/w1/", Some("gets 404")),
        ("/w", "http://app:80/", Some("gets 404")),
        ("/w/", "http://app:80/w1", None),
        ("= /w", "http://app:80/w1", None),
        ("/w", "http://app:80", None),
        ("/w", "http://app:80/w", None),
    ] {
        let text = format!(
            "[[sites]]\nlisten = 80\nroot = \"other\"\n\
             [[sites.locations]]\npath = \"{pattern}\"\nupstream = \"{upstream}\"\n"
        );
        let warnings = parse_in(folder.path(), &text).unwrap().warnings.to_string();
        let found = warnings.contains("a prefix that ends inside a segment");
        assert_eq!(found, label.is_some(), "{pattern} {upstream} {warnings}");
        assert!(
            label.is_none_or(|label| warnings.contains(label)),
            "{warnings}"
        );
    }
}

#[test]
fn a_group_limits_the_heads_of_responses_and_may_be_lenient() {
    let folder = folder();
    let group = |keys: &str| {
        let text = format!(
            "[[sites]]\nlisten = 80\nupstream = \"app\"\n\
             [[sites.upstreams]]\nname = \"app\"\nnodes = \"a:1\"\n{keys}\n"
        );
        let plan = parse_in(folder.path(), &text).unwrap();
        plan.upstreams[0].group.responses
    };
    assert_eq!(group(""), ResponseRules::default());
    let keys = "response_header_size = 8\nresponse_header_fields = 50\nlenient = true";
    let rules = ResponseRules {
        head_bytes: 8 * 1024,
        fields: 50,
        is_lenient: true,
    };
    assert_eq!(group(keys), rules);
}
