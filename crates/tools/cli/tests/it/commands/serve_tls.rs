//! `apus serve --tls`: a certificate that curl accepts from the local authority.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::harness::Home;

fn curl(home: &Home, url: &str) -> (bool, String) {
    let root = home.path(".local/share/apus/ca/root.pem");
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "20", "--cacert"])
        .arg(root)
        .arg(url)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text.into_owned())
}

#[test]
fn curl_trusts_the_local_authority() {
    let home = Home::new();
    let apus = home.serve(&["site", "--tls", "--listen", "127.0.0.1:0"]);
    let url = &apus.urls()[0];
    assert!(url.starts_with("https://"), "{url}");
    assert_eq!(curl(&home, url), (true, "<h1>hello</h1>".to_owned()));
    let by_name = url.replace("127.0.0.1", "localhost");
    assert_eq!(curl(&home, &by_name), (true, "<h1>hello</h1>".to_owned()));
    apus.wait_for_log("root.pem");

    let key = home.path(".local/share/apus/ca/root.key");
    assert_eq!(
        fs::metadata(key).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn the_local_authority_is_created_once() {
    let home = Home::new();
    let root = || fs::read(home.path(".local/share/apus/ca/root.pem")).unwrap();
    drop(home.serve(&["site", "--tls", "--listen", "127.0.0.1:0"]));
    let first = root();
    let apus = home.serve(&["site", "--tls", "--listen", "127.0.0.1:0"]);
    assert_eq!(root(), first);
    assert!(curl(&home, &apus.urls()[0]).0);
    assert!(!apus.log().contains("root.pem"), "{}", apus.log());
}

#[test]
fn a_folder_is_served_in_clear_text_and_with_tls() {
    let home = Home::new();
    let apus = home.serve(&["site", "--tls"]);
    let [clear, tls] = apus.urls() else {
        panic!("{:?}", apus.urls());
    };
    assert!(clear.starts_with("http://") && tls.starts_with("https://"));
    assert_eq!(apus.get("/").status, 200);
    assert!(curl(&home, tls).0);
}

const SITES: &str = r#"
[[sites]]
server_name = ["one.example", "*.one.example"]
listen_tls = "127.0.0.1:0"
root = "site"
[[sites]]
name = "rest"
server_name = ["two.example", "_"]
listen = "127.0.0.2:0"
root = "site"
"#;

#[test]
fn sites_without_a_certificate_get_one_of_the_local_authority() {
    let home = Home::new();
    home.write("apus.toml", SITES);
    home.expect(&["check"], 1);
    home.expect(&["check", "--tls"], 0);
    let explain = ["explain", "GET", "https://one.example/"];
    let (out, _) = home.expect(&explain, 0);
    assert!(out.contains("200 OK"), "{out}");
    assert!(
        !home.path(".local").exists(),
        "check or explain has created an authority"
    );

    let apus = home.serve(&["apus.toml", "--tls"]);
    let url = apus.urls().iter().find(|url| url.starts_with("https://"));
    let port = url
        .unwrap()
        .trim_end_matches('/')
        .rsplit(':')
        .next()
        .unwrap();
    for name in ["one.example", "www.one.example"] {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "20", "--cacert"])
            .arg(home.path(".local/share/apus/ca/root.pem"))
            .args(["--resolve", &format!("{name}:{port}:127.0.0.1")])
            .arg(format!("https://{name}:{port}/"))
            .output()
            .unwrap();
        assert_eq!(output.stdout, b"<h1>hello</h1>", "{name}: {output:?}");
    }
    home.expect(&["reload"], 0);
}
