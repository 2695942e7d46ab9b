//! What conditions know of the client: its TLS, its certificate, and the user whom an authentication established.

use std::process::Command;

use apus_testkit::CertificateAuthority;

use crate::harness::{Apus, Home, free_port, wait_until};
use crate::wire::Wire;

/// Tokens of HS256 with the secret below. The claims: `sub` is ada, `tenant` one, `groups` staff and ops, `realm.plan` gold.
const ADA: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhZGEiLCJleHAiOjQxMDI0NDQ4MDAsInRlbmFudCI6Im9uZSIsImdyb3VwcyI6WyJzdGFmZiIsIm9wcyJdLCJyZWFsbSI6eyJwbGFuIjoiZ29sZCJ9fQ.ezkyRC3fjH2jnBZnYXXQWYudrBNjai0Od4NT0GXr57A";
/// No `sub`, `tenant` one, `groups` guests.
const GUEST: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJleHAiOjQxMDI0NDQ4MDAsInRlbmFudCI6Im9uZSIsImdyb3VwcyI6Imd1ZXN0cyJ9.rg2Suu1MCEM4emavq19HnxUeJhieB_TqFVJSI38tObk";
/// `sub` is eve, `tenant` two.
const EVE: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJldmUiLCJleHAiOjQxMDI0NDQ4MDAsInRlbmFudCI6InR3byJ9.gjtlIf-NC6KwwvByHJIVnT3zasB6UyiNMJe2NF9LkrE";

/// The head of the response to curl.
fn curl(home: &Home, url: &str, arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .current_dir(home.path("."))
        .args(["-sk", "-m", "20", "-D", "-", "-o", "/dev/null", url])
        .args(arguments)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().to_lowercase()
}

fn field(head: &str, name: &str) -> String {
    let line = head.lines().find_map(|line| line.strip_prefix(name));
    line.map_or_else(String::new, |line| {
        line.trim_start_matches(':').trim().to_owned()
    })
}

#[test]
fn conditions_and_variables_know_the_fingerprint_the_protocol_and_the_certificate_of_a_client() {
    let home = Home::new();
    let authority = CertificateAuthority::named("One");
    let alice = authority.ecdsa(&["alice.example", "192.0.2.7"]);
    let server = authority.ecdsa(&["localhost"]);
    for (name, text) in [
        ("key.pem", &server.key),
        ("cert.pem", &server.pem),
        ("authority.pem", &authority.pem),
        ("alice.pem", &alice.pem),
        ("alice.key", &alice.key),
    ] {
        home.write(name, text);
    }
    let port = free_port();
    home.write(
        "apus.toml",
        format!(
            r#"
[[sites]]
server_name = "localhost"
listen_tls = "127.0.0.1:{port}"
return = {{ status = 200, text = "" }}
tls = {{ cert = "cert.pem", key = "key.pem", client_auth = "optional", client_ca = "authority.pem" }}
headers.set = {{ x-ja4 = "$ssl_ja4", x-alpn = "$ssl_alpn_protocol", x-issuer = "$ssl_client_i_dn" }}
[[sites.rules]]
when = 'tls.ja4 ~ "^q13[di][0-9]{{4}}h3_[0-9a-f]{{12}}_[0-9a-f]{{12}}$" and tls.alpn == "h3"'
return = {{ status = 204 }}
[[sites.rules]]
when = 'tls.ja4 starts_with "t13" and tls.alpn == "h2"'
headers.set = {{ x-rule = "h2" }}
[[sites.rules]]
when = 'certificate.san == "alice.example" and certificate.issuer ~ "CN=One"'
headers.set = {{ x-san = "alice" }}
"#
        ),
    );
    let _apus = home.serve(&[]);
    let url = format!("https://localhost:{port}/");
    let first = curl(&home, &url, &["--http2"]);
    let ja4 = field(&first, "x-ja4");
    assert!(
        ja4.starts_with("t13d") && ja4.get(8..11) == Some("h2_") && ja4.len() == 36,
        "{first}"
    );
    assert_eq!(field(&first, "x-alpn"), "h2");
    assert_eq!(field(&first, "x-rule"), "h2");
    assert_eq!(
        (field(&first, "x-issuer"), field(&first, "x-san")),
        Default::default()
    );
    assert_eq!(field(&curl(&home, &url, &["--http2"]), "x-ja4"), ja4);

    let other = curl(
        &home,
        &url,
        &["--http1.1", "--cert", "alice.pem", "--key", "alice.key"],
    );
    // Another protocol is offered first; all else is the same.
    let of_other = field(&other, "x-ja4");
    assert_eq!(of_other, ja4.replace("h2_", "h1_"), "{other}");
    assert_eq!(field(&other, "x-alpn"), "http/1.1");
    assert_eq!(field(&other, "x-rule"), "");
    assert_eq!(field(&other, "x-issuer"), "cn=one");
    assert_eq!(field(&other, "x-san"), "alice");

    let older = curl(&home, &url, &["--tls-max", "1.2"]);
    assert!(field(&older, "x-ja4").starts_with("t12d"), "{older}");
    let bench = [
        "bench", &url, "-k", "--http3", "-c", "1", "-t", "1", "-n", "1",
    ];
    home.expect(&[&bench[..], &["--status", "204"]].concat(), 0);
}

#[test]
fn a_limit_by_fingerprint_counts_each_program_by_itself_from_whatever_address() {
    let home = Home::new();
    let server = CertificateAuthority::named("One").ecdsa(&["localhost"]);
    home.write("key.pem", &server.key);
    home.write("cert.pem", &server.pem);
    let port = free_port();
    // Nothing else asks for the fingerprint.
    home.write(
        "apus.toml",
        format!(
            r#"
[[sites]]
server_name = "localhost"
listen_tls = "127.0.0.1:{port}"
return = {{ status = 200, text = "" }}
tls = {{ cert = "cert.pem", key = "key.pem" }}
limits = [{{ name = "program", key = "tls.ja4", rate = "2/h" }}]
"#
        ),
    );
    let _apus = home.serve(&[]);
    let url = format!("https://localhost:{port}/");
    let statuses = |arguments: &[&str]| {
        [(); 3].map(|()| {
            let head = curl(&home, &url, arguments);
            let status = head.lines().next().and_then(|line| line.split(' ').nth(1));
            status.and_then(|status| status.parse().ok()).unwrap_or(0)
        })
    };
    assert_eq!(statuses(&["--http2"]), [200, 200, 429]);
    // The same program at another address has nothing left, and other settings of TLS are another program.
    let elsewhere = ["--interface", "127.0.0.2", "-4"];
    assert_eq!(
        statuses(&[&["--http2"], &elsewhere[..]].concat()),
        [429, 429, 429]
    );
    assert_eq!(statuses(&["--http1.1"]), [200, 200, 429]);
    assert_eq!(statuses(&["--tls-max", "1.2"]), [200, 200, 429]);
    assert_eq!(
        statuses(&["--http2", "--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256"]),
        [200, 200, 429]
    );
}

const USERS: &str = r#"
[[sites]]
listen = "127.0.0.1:0"
return = { status = 200, text = "" }
[[sites.rules]]
on = "response"
when = 'user == "ada"'
headers.set = { x-user = "ada" }
[[sites.rules]]
on = "response"
when = 'claim.groups == "staff" and claim.realm.plan == "gold"'
headers.set = { x-claims = "staff" }
[[sites.locations]]
path = "/names/"
basic_auth = { users_file = "users" }
return = { status = 200, text = "" }
[[sites.locations.rules]]
on = "response"
when = "user exists"
headers.set = { x-location = "known" }
[[sites.locations]]
path = "/tokens/"
jwt = { key_file = "key", algorithm = "HS256" }
return = { status = 200, text = "" }
[[sites.locations]]
path = "/tenants/"
jwt = { key_file = "key", algorithm = "HS256" }
limits = [{ name = "tenants", key = "claim.tenant", rate = "1/h" }]
return = { status = 200, text = "" }
"#;

fn ask(apus: &Apus, path: &str, credentials: &str) -> (u16, String) {
    let mut wire = Wire::connect(apus.address());
    wire.send(format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: {credentials}\r\nConnection: close\r\n\r\n"
    ));
    let received = wire.read();
    let named = ["x-user", "x-claims", "x-location"];
    let fields = received.head.iter().filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_named = named.iter().any(|known| name.eq_ignore_ascii_case(known));
        is_named.then_some(value)
    });
    (received.status, fields.collect::<Vec<_>>().join(" "))
}

#[test]
fn rules_for_responses_and_limits_know_the_user_and_the_claims_of_a_token() {
    let home = Home::new();
    // `openssl passwd -5 -salt saltsalt correct`.
    home.write(
        "users",
        "ada:$5$saltsalt$bM2NOMXBvP/yo4CGWbQ.USJSeF5uzaT2H3bDmiXYqo1\n",
    );
    home.write("key", "0123456789abcdef".repeat(4));
    home.write("apus.toml", USERS);
    let apus = home.serve(&[]);
    let bearer = |path, token: &str| ask(&apus, path, &format!("Bearer {token}"));
    let basic = |path, credentials: &str| ask(&apus, path, &format!("Basic {credentials}"));
    assert_eq!(
        basic("/names/", "YWRhOmNvcnJlY3Q="),
        (200, "known ada".to_owned())
    );
    assert_eq!(basic("/names/", "YWRhOndyb25n"), (401, String::new()));
    // A name that nobody checked is none.
    assert_eq!(basic("/", "YWRhOmNvcnJlY3Q="), (200, String::new()));
    assert_eq!(bearer("/", ADA), (200, String::new()));
    assert_eq!(bearer("/tokens/", ADA), (200, "ada staff".to_owned()));
    assert_eq!(bearer("/tokens/", GUEST), (200, String::new()));
    let forged = format!("{}x", ADA.trim_end_matches('x'));
    assert_eq!(bearer("/tokens/", &forged), (401, String::new()));
    // Whoever has the same claim counts together, and no other.
    assert_eq!(bearer("/tenants/", ADA).0, 200);
    assert_eq!(bearer("/tenants/", GUEST).0, 429);
    assert_eq!(bearer("/tenants/", EVE).0, 200);
}

const BUSY: &str = r#"
[[sites]]
listen = "127.0.0.1:0"
return = { status = 200, text = "" }
[[sites.rules]]
when = "load <= 100%"
headers.set = { x-user = "measured" }
[[sites.rules]]
when = "connections >= 10"
headers.set = { x-location = "many" }
"#;

#[test]
fn conditions_know_how_busy_the_server_is() {
    let home = Home::new();
    home.write("apus.toml", BUSY);
    let apus = home.serve(&[]);
    wait_until("the load is measured", || {
        ask(&apus, "/", "none").1 == "measured"
    });
    let open: Vec<Wire> = (0..10).map(|_| Wire::connect(apus.address())).collect();
    wait_until("the connections are counted", || {
        ask(&apus, "/", "none").1 == "measured many"
    });
    drop(open);
    wait_until("closed ones are not counted", || {
        ask(&apus, "/", "none").1 == "measured"
    });
}
