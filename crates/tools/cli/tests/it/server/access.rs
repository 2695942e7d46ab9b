//! Which clients are served: networks, passwords, certificates, signed links and the pages they come from, against clients that
//! try to be others.

use std::process::Command;

use apus_testkit::{CertificateAuthority, IssuedCertificate};

use crate::clients::Curl;
use crate::harness::{Apus, Home, free_port};
use crate::wire::{Received, Wire};

const SECRET: &str = "only for the office";
/// `openssl passwd -apr1` of `correct`.
const USERS: &str = "ada:$apr1$saltsalt$M2b95Jota4AKoI/tH3eyJ/\n";
/// `ada:correct` and `ada:wrong`.
const RIGHT: &str = "Authorization: Basic YWRhOmNvcnJlY3Q=\r\n";
const WRONG: &str = "Authorization: Basic YWRhOndyb25n\r\n";
const OFFICE: &str = "X-Forwarded-For: 192.0.2.7\r\n";
const OTHER: &str = "X-Forwarded-For: 203.0.113.7\r\n";

/// A site behind a trusted proxy, which the test is.
fn serve() -> (Home, Apus) {
    let home = Home::new();
    for folder in ["office", "any", "images", "signed"] {
        std::fs::create_dir(home.path(&format!("site/{folder}"))).unwrap();
        home.write(&format!("site/{folder}/secret.txt"), SECRET);
    }
    home.write("site/office/.htaccess", SECRET);
    home.write("site/403.html", "the page for 403");
    home.write("users", USERS);
    home.write("office.txt", "192.0.2.0/24 # all desks\n");
    home.write("links.key", "0123456789abcdef0123456789abcdef\n");
    home.write(
        "apus.toml",
        r#"
[global]
trusted_proxies = "127.0.0.0/8"
[global.lists]
office = { networks = "office.txt" }
guest = ["192.0.2.66"]
[[sites]]
listen = "127.0.0.1:0"
root = "site"
error_pages = { 403 = "/403.html" }
access_log = { path = "log", format = "$remote_addr $status user=$remote_user" }
[[sites.locations]]
path = "/office/"
allow = ["@office", "2001:db8::/32"]
deny = "@guest"
[[sites.locations]]
path = "/any/"
allow = "192.0.2.0/24"
deny = "192.0.2.66"
basic_auth = { users_file = "users" }
satisfy = "any"
headers.set = { x-user = "$remote_user" }
[[sites.locations]]
path = "/moved/"
allow = "192.0.2.0/24"
rewrite = [{ from = "^/moved/(.*)$", to = "/any/$1", then = "last" }]
[[sites.locations]]
path = "/images/"
referers = true
[[sites.locations]]
path = "/signed/"
signed_url = { key_file = "links.key" }
"#,
    );
    let apus = home.serve(&[]);
    (home, apus)
}

fn send(apus: &Apus, target: &str, lines: &str) -> Received {
    let mut wire = Wire::connect(apus.address());
    wire.send(format!(
        "GET {target} HTTP/1.1\r\nHost: a.example\r\n{lines}Connection: close\r\n\r\n"
    ));
    wire.read()
}

#[test]
fn a_network_that_is_not_allowed_gets_403_by_every_spelling_of_a_request() {
    let (home, apus) = serve();
    let target = "/office/secret.txt";
    for (lines, status) in [
        (OFFICE, 200),
        (OTHER, 403),
        ("", 403),
        ("X-Forwarded-For: 192.0.2.66\r\n", 403),
        ("X-Forwarded-For: ::ffff:192.0.2.7\r\n", 200),
        ("X-Forwarded-For: ::ffff:192.0.2.66\r\n", 403),
        ("X-Forwarded-For: ::ffff:cb00:7107\r\n", 403),
        ("X-Forwarded-For: 2001:db8::1\r\n", 200),
        ("X-Forwarded-For: 2001:db9::1\r\n", 403),
        // The last address is the one that the trusted proxy saw.
        ("X-Forwarded-For: 192.0.2.7, 203.0.113.7\r\n", 403),
        (
            "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-For: 203.0.113.7\r\n",
            403,
        ),
        ("X-Forwarded-For: 192.0.2.7, unknown\r\n", 403),
        ("X-Forwarded-For: 192.0.2.7, garbage\r\n", 403),
        ("X-Forwarded-For: 192.0.2.007\r\n", 403),
        ("Forwarded: for=192.0.2.7\r\n", 403),
        (
            "X-Real-IP: 192.0.2.7\r\nCF-Connecting-IP: 192.0.2.7\r\n",
            403,
        ),
        ("X_Forwarded_For: 192.0.2.7\r\n", 403),
        (
            "X-Forwarded-For: 192.0.2.7\r\nConnection: X-Forwarded-For\r\nX-Forwarded-For: 203.0.113.7\r\n",
            403,
        ),
    ] {
        let reply = send(&apus, target, lines);
        assert_eq!(reply.status, status, "{lines}");
        assert_eq!(reply.text() == SECRET, status == 200, "{lines}");
        if status == 403 {
            assert_eq!(reply.text(), "the page for 403", "{lines}");
        }
    }
    for target in [
        "//office/secret.txt",
        "/./office/secret.txt",
        "/x/../office/secret.txt",
        "/any/..%2foffice/secret.txt",
        "/%6fffice/secret.txt",
        "/%6Fffice%2Fsecret.txt",
        "/office%2fsecret.txt",
        "/office//secret.txt",
        "/office/./secret.txt",
        "/office/secret.txt/",
        "/office/secret.txt/x.css",
        "/office/secret.txt%00.css",
        "/office/secret.txt?x=/images/",
        "/office;a=b/secret.txt",
        "/office/secret.txt;a=b",
        "/office./secret.txt",
        "/OFFICE/secret.txt",
        "\\office\\secret.txt",
        "/office\\secret.txt",
        "/images/../office/secret.txt",
        "/images%2f..%2foffice/secret.txt",
        "http://a.example/office/secret.txt",
        "http://192.0.2.7/office/secret.txt",
        "http://a.example./office/secret.txt",
        "https://a.example:443/office/secret.txt",
        "/office/.htaccess",
    ] {
        let reply = send(&apus, target, OTHER);
        assert_ne!(reply.text(), SECRET, "{target}");
        assert!(
            (400..500).contains(&reply.status),
            "{target} {}",
            reply.status
        );
    }
    // HTTP/2 has the target and the host in pseudo-fields.
    let url = format!("http://{}", apus.address());
    for (target, lines, status) in [
        (target, OTHER, 403),
        ("//office/secret.txt", OTHER, 403),
        ("/%6fffice/secret.txt", OTHER, 403),
        (target, "", 403),
        (target, OFFICE, 200),
    ] {
        let mut curl = Curl::new().args(&["--http2-prior-knowledge"]);
        for line in lines.lines() {
            curl = curl.args(&["--header", line]);
        }
        let reply = curl.get(&format!("{url}{target}"));
        assert_eq!(
            (reply.status, &*reply.version),
            (status, "2"),
            "{target} {lines}"
        );
    }
    drop(apus);
    assert!(home.read("log").contains("203.0.113.7 403 user="));
}

#[test]
fn one_of_several_ways_is_enough_and_the_user_is_known_in_each() {
    let (home, apus) = serve();
    let denied = "X-Forwarded-For: 192.0.2.66\r\n";
    for (client, credentials, status, user) in [
        (OFFICE, "", 200, ""),
        (OFFICE, RIGHT, 200, "ada"),
        (OFFICE, WRONG, 200, ""),
        (OTHER, RIGHT, 200, "ada"),
        (OTHER, WRONG, 401, ""),
        (OTHER, "", 401, ""),
        // What is denied is denied with a password, too.
        (denied, RIGHT, 403, ""),
    ] {
        for forged in [
            "",
            "Remote-User: eve\r\nX-Remote-User: eve\r\nX-User: eve\r\n",
        ] {
            let lines = format!("{client}{credentials}{forged}");
            let reply = send(&apus, "/any/secret.txt", &lines);
            assert_eq!(reply.status, status, "{lines}");
            assert_eq!(reply.text() == SECRET, status == 200, "{lines}");
            if status == 200 {
                assert_eq!(reply.field("x-user").unwrap_or_default(), user, "{lines}");
            }
            let challenge = reply.field("www-authenticate");
            assert_eq!(challenge.is_some(), status == 401, "{lines}");
        }
    }
    // Two fields: an application might read the other one.
    let reply = send(&apus, "/any/secret.txt", &format!("{OTHER}{RIGHT}{RIGHT}"));
    assert_eq!(reply.status, 400);
    // A redirect within the site leads past no rule.
    assert_eq!(send(&apus, "/moved/secret.txt", OFFICE).status, 200);
    assert_eq!(send(&apus, "/moved/secret.txt", OTHER).status, 401);
    drop(apus);
    let log = home.read("log");
    for line in [
        "203.0.113.7 200 user=ada",
        "192.0.2.7 200 user=ada",
        "192.0.2.7 200 user=-",
        "203.0.113.7 401 user=-",
    ] {
        assert!(log.contains(line), "{line}\n{log}");
    }
    assert!(!log.contains("eve"), "{log}");
}

#[test]
fn pictures_are_for_pages_of_the_site() {
    let (_home, apus) = serve();
    for (lines, status) in [
        ("", 200),
        ("Referer: http://a.example/page\r\n", 200),
        ("Referer: https://evil.example/a.example/\r\n", 403),
        ("Referer: https://a.example.evil.example/\r\n", 403),
        ("Referer: https://a.example@evil.example/\r\n", 403),
        (
            "Referer: http://a.example/\r\nReferer: https://evil.example/\r\n",
            403,
        ),
    ] {
        assert_eq!(
            send(&apus, "/images/secret.txt", lines).status,
            status,
            "{lines}"
        );
    }
    // The host in the target of an absolute form is the one that counts.
    let reply = send(
        &apus,
        "http://b.example/images/secret.txt",
        "Referer: http://a.example/\r\n",
    );
    assert_eq!(reply.status, 403);
}

#[test]
fn signed_links_are_made_by_the_command_and_checked_as_they_were_sent() {
    let (home, apus) = serve();
    let sign = |arguments: &[&str]| {
        let all: Vec<_> = ["sign-url", "--key-file", "links.key"]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        home.expect(&all, 0).0.trim_end().to_owned()
    };
    let forever = sign(&["/signed/secret.txt"]);
    let hour = sign(&["--expires-in", "1h", "/signed/secret.txt?a=b"]);
    let past = sign(&["--expires-at", "1000", "/signed/secret.txt"]);
    let whole = sign(&["https://cdn.example/signed/secret.txt"]);
    assert!(
        whole.starts_with("https://cdn.example/signed/secret.txt?signature="),
        "{whole}"
    );
    for link in [&forever, &hour, &whole.replace("https://cdn.example", "")] {
        assert_eq!(send(&apus, link, "").text(), SECRET, "{link}");
        assert_eq!(
            send(&apus, &format!("http://a.example{link}"), "").text(),
            SECRET,
            "{link}"
        );
        for other in [
            link.replace("signed/", "signed//"),
            link.replace("signed/", "signed/./"),
            link.replace("secret", "%73ecret"),
            link.replace("secret.txt", "secret.txt/"),
            link.replace("/signed/", "/any/../signed/"),
            link.replace("signature=", "signature=&signature="),
            link.replace("signature=", "Signature="),
            link.replace("signature=", "signature=A"),
            format!("{link}&"),
            format!("{link}&a=b"),
            format!("{link}&expires=99999999999"),
            format!("{link}="),
            link.split(['?', '&']).next().unwrap().to_owned(),
        ] {
            let reply = send(&apus, &other, "");
            assert_eq!(
                (reply.status, reply.text()),
                (403, "the page for 403".to_owned()),
                "{other}"
            );
        }
    }
    assert_eq!(send(&apus, &past, "").status, 403);
    assert_eq!(
        send(&apus, &past.replace("=1000", "=9999999999"), "").status,
        403
    );
    for misuse in [
        &["sign-url", "/a"][..],
        &["sign-url", "--key-file", "links.key", "a"],
        &[
            "sign-url",
            "--key-file",
            "links.key",
            "--expires-in",
            "1h",
            "--expires-at",
            "1",
            "/a",
        ],
    ] {
        home.expect(misuse, 2);
    }
    home.write("short.key", "short");
    let (_, errors) = home.expect(&["sign-url", "--key-file", "short.key", "/a"], 1);
    assert!(errors.contains("openssl rand"), "{errors}");
}

#[test]
fn explain_says_who_refused_a_request_and_why() {
    let (home, _apus) = serve();
    let (text, _) = home.expect(&["explain", "GET", "http://127.0.0.1/office/secret.txt"], 0);
    assert!(text.contains("403 by allow"), "{text}");
    assert!(text.contains("your address is not allowed"), "{text}");
    let (text, _) = home.expect(&["explain", "GET", "http://127.0.0.1/any/secret.txt"], 0);
    assert!(
        text.contains("403 by allow") && text.contains("401 by basic_auth"),
        "{text}"
    );
    let request = [
        "explain",
        "GET",
        "http://127.0.0.1/any/secret.txt",
        "--header",
        RIGHT.trim_end(),
    ];
    let (text, _) = home.expect(&request, 0);
    assert!(text.contains("admitted by basic_auth"), "{text}");
}

/// The status of a request on a connection with this certificate, over this version of HTTP; 0 without a connection.
fn status_of(home: &Home, client: Option<&IssuedCertificate>, version: &str, url: &str) -> String {
    let mut command = Command::new("curl");
    command.args([
        "--silent",
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code}",
        version,
    ]);
    command.arg("--cacert").arg(home.path("authority.pem"));
    if let Some(client) = client {
        home.write("client.pem", client.pem.clone() + &client.key);
        command.arg("--cert").arg(home.path("client.pem"));
    }
    let output = command.arg(url).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_location_requires_a_certificate_that_is_not_revoked() {
    let home = Home::new();
    let authority = CertificateAuthority::named("One");
    let (alice, bob) = (authority.ecdsa(&["alice"]), authority.ecdsa(&["bob"]));
    let server = authority.ecdsa(&["localhost"]);
    home.write("key.pem", &server.key);
    home.write("cert.pem", &server.pem);
    home.write("authority.pem", &authority.pem);
    home.write("revoked.pem", authority.revocation_list(&[&bob]));
    std::fs::create_dir(home.path("site/private")).unwrap();
    home.write("site/private/a.txt", SECRET);
    home.write("users", USERS);
    let port = free_port();
    home.write(
        "apus.toml",
        format!(
            r#"
[[sites]]
server_name = "localhost"
listen_tls = "127.0.0.1:{port}"
root = "site"
tls = {{ cert = "cert.pem", key = "key.pem", client_auth = "optional", client_ca = "authority.pem", client_crl = "revoked.pem" }}
[[sites.locations]]
path = "/private/"
client_certificate = "required"
[[sites.locations]]
path = "/office/"
alias = "site/private"
allow = "192.0.2.0/24"
[[sites.locations]]
path = "/staff/"
alias = "site/private"
basic_auth = {{ users_file = "users" }}
[[sites.locations]]
path = "/images/"
alias = "site/private"
referers = true
"#
        ),
    );
    let _apus = home.serve(&[]);
    let status = |client, version, path| {
        status_of(
            &home,
            client,
            version,
            &format!("https://localhost:{port}{path}"),
        )
    };
    for version in ["--http1.1", "--http2"] {
        assert_eq!(status(None, version, "/"), "200");
        assert_eq!(status(None, version, "/private/a.txt"), "403");
        assert_eq!(status(None, version, "/%70rivate//a.txt"), "403");
        assert_eq!(status(Some(&alice), version, "/private/a.txt"), "200");
        // A certificate that is revoked ends the handshake.
        assert_eq!(status(Some(&bob), version, "/private/a.txt"), "000");
        assert_eq!(status(Some(&bob), version, "/"), "000");
    }
    // Over HTTP/3, which curl need not have.
    for (path, field, status) in [
        ("/", "X-A: b", "200"),
        ("/private/a.txt", "Client-Cert: :AA==:", "403"),
        ("/%70rivate//a.txt", "X-SSL-Client-Verify: SUCCESS", "403"),
        ("/office/a.txt", "X-Forwarded-For: 192.0.2.7", "403"),
        ("/staff/a.txt", "Remote-User: ada", "401"),
        ("/staff/a.txt", RIGHT.trim_end(), "200"),
        ("/images/a.txt", "Referer: https://evil.example/", "403"),
        ("/images/a.txt", "Referer: https://localhost/", "200"),
    ] {
        let url = format!("https://localhost:{port}{path}");
        let bench = [
            "bench", &url, "-k", "--http3", "-c", "1", "-t", "1", "-n", "1",
        ];
        home.expect(
            &[&bench[..], &["-H", field, "--status", status]].concat(),
            0,
        );
    }
}
