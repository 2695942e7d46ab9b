//! The files of the running configuration are never served, whatever the root is.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::clients::certificate;
use crate::harness::{Apus, Home, free_port};
use crate::proxy::scripted_origin::ScriptedOrigin;

const MARK: &str = "what-nobody-may-see";

/// A server whose roots contain everything that it has.
struct Site {
    home: Home,
    apus: Apus,
    tls: u16,
    _origin: ScriptedOrigin,
}

impl Site {
    fn start() -> Self {
        let home = Home::new();
        home.make_folder("logs");
        home.make_folder("cached");
        home.make_folder("acme");
        home.make_folder("qlog");
        certificate(&home, "localhost", "localhost");
        home.write(
            "users.htpasswd",
            format!("# {MARK}\nu:$5$saltsalt$bM2NOMXBvP/yo4CGWbQ.USJSeF5uzaT2H3bDmiXYqo1\n"),
        );
        for name in [
            "acme/account.json",
            "cached/object",
            "qlog/0011223344556677_server.sqlog",
            "apus.toml~",
            ".env",
            "sites.toml.bak",
        ] {
            home.write(name, MARK);
        }
        let origin = ScriptedOrigin::responding(
            "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /inner/apus.toml\r\nContent-Length: 0\r\n\r\n",
        );
        let (clear, tls) = (free_port(), free_port());
        home.write(
            "apus.toml",
            format!(
                "# {MARK}\ninclude = [\"sites.toml\"]\n[global]\nacme_folder = \"acme\"\n\
                 tls_key_log = \"logs/keys.log\"\ncache = {{ dir = \"cached\", size = 10 }}\naccess_log = \"logs/access.log\"\n"
            ),
        );
        home.write(
            "sites.toml",
            format!(
                "# {MARK}\n[[sites]]\nlisten = \"127.0.0.1:{clear}\"\n\
                 listen_tls = \"127.0.0.1:{tls}\"\nroot = \".\"\nlisting = true\n\
                 hidden_files = true\nsymlinks = \"all\"\n\
                 tls = {{ cert = \"localhost.pem\", key = \"localhost.key\", http3.qlog = \"qlog\" }}\n\
                 [[sites.locations]]\npath = \"/inner/\"\ninternal = true\nalias = \".\"\n\
                 [[sites.locations]]\npath = \"/accel\"\nupstream = \"http://{}\"\n\
                 proxy.accel = true\n\
                 [[sites.locations]]\npath = \"/cached-path/\"\nupstream = \"http://{}\"\n\
                 cache = true\n\
                 [[sites.locations]]\npath = \"/user/\"\n\
                 basic_auth = {{ users_file = \"users.htpasswd\" }}\nalias = \"site\"\n",
                origin.address(),
                origin.address(),
            ),
        );
        symlink("localhost.key", home.path("link")).unwrap();
        symlink("apus.toml", home.path("site/index.html.gz")).unwrap();
        let apus = home.serve(&["apus.toml"]);
        Self {
            home,
            apus,
            tls,
            _origin: origin,
        }
    }
}

#[test]
fn the_files_of_the_running_configuration_are_never_served_whatever_the_root() {
    let site = Site::start();
    // Before the start, a server of root would not read a key with two names in a folder that is not of root.
    fs::hard_link(site.home.path("localhost.key"), site.home.path("hard")).unwrap();
    assert_eq!(site.apus.get("/site/index.html").status, 200);
    assert_eq!(site.apus.get("/localhost.pem").status, 200, "it is public");
    let names = [
        "apus.toml",
        "apus.toml~",
        "sites.toml",
        "sites.toml.bak",
        "localhost.key",
        "link",
        "hard",
        "users.htpasswd",
        "logs/access.log",
        "logs/keys.log",
        "qlog/0011223344556677_server.sqlog",
        "qlog/",
        "acme/account.json",
        "acme/",
        "cached/object",
        "cached/",
        ".env",
    ];
    for name in names {
        for form in [
            format!("/{name}"),
            format!("//{name}"),
            format!("/./{name}"),
            format!("/site/../{name}"),
        ] {
            let reply = site.apus.get(&form);
            assert_eq!(reply.status, 404, "{form}");
            assert!(!reply.body.contains(MARK), "{form}");
        }
    }
    for version in ["--http1.1", "--http2", "--http3"] {
        for options in [
            &[][..],
            &["--head"],
            &["--range", "0-100"],
            &["--compressed"],
        ] {
            for name in names {
                let output = Command::new("curl")
                    .args(["-ksS", "-o", "/dev/null", "-w", "%{http_code}", version])
                    .args(options)
                    .args(["--resolve", &format!("localhost:{}:127.0.0.1", site.tls)])
                    .arg(format!("https://localhost:{}/{name}", site.tls))
                    .output()
                    .unwrap();
                // Not every curl has HTTP/3.
                if output.status.code() == Some(2) && version == "--http3" {
                    continue;
                }
                assert_eq!(
                    String::from_utf8_lossy(&output.stdout),
                    "404",
                    "{name} {version} {options:?}"
                );
            }
        }
    }
    let reply = site.apus.get("/accel");
    assert_eq!(reply.status, 404, "{}", reply.body);
    let listing = site.apus.get("/?format=json").body;
    assert!(listing.contains("\"localhost.pem\""), "{listing}");
    for name in [
        "apus.toml",
        "sites.toml",
        "localhost.key",
        "htpasswd",
        "\"acme\"",
        "\"qlog\"",
        ".env",
        "hard",
    ] {
        assert!(!listing.contains(name), "{name} in {listing}");
    }
}

#[test]
fn a_root_that_contains_files_of_the_configuration_is_a_warning_of_check() {
    let site = Site::start();
    let (out, err) = site.home.expect(&["check", "apus.toml"], 0);
    let text = format!("{out}{err}");
    assert!(
        text.contains("private files of the server are below"),
        "{text}"
    );
    assert!(
        text.contains("apus.toml") && text.contains("more"),
        "{text}"
    );
    // The folder that the site itself needs is without any.
    let home = Home::new();
    home.write("apus.toml", "[[sites]]\nlisten = 8080\nroot = \"site\"\n");
    let (out, err) = home.expect(&["check", "apus.toml"], 0);
    assert!(
        !format!("{out}{err}").contains("private files"),
        "{out}{err}"
    );
}
