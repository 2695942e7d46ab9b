//! The dashboard of a real server in Chromium and Firefox.

use std::process::{Command, Stdio};

use super::challenge::RunningBrowser;
use super::program;
use crate::harness::{Apus, Home, free_port, get};

/// A server, and the port of its address of the operator.
fn serve(home: &Home) -> (Apus, u16) {
    let [site, admin] = [free_port(), free_port()];
    home.write(
        "apus.toml",
        format!(
            "[global]\ncontrol_socket = \"control.sock\"\nadmin_listen = \"127.0.0.1:{admin}\"\n\
             [[sites]]\nname = \"shop\"\nlisten = \"127.0.0.1:{site}\"\nroot = \"site\"\n"
        ),
    );
    (home.serve(&["apus.toml"]), admin)
}

#[test]
fn the_page_and_its_files_are_served_compressed_with_a_strict_policy() {
    let home = Home::new();
    let (_apus, admin) = serve(&home);
    for path in ["", "dashboard.js", "style.css", "icon.svg"] {
        let url = format!("http://127.0.0.1:{admin}/{path}");
        let output = Command::new("curl")
            .args(["-s", "-m", "20", "--compressed", "-D", "-", &url])
            .output()
            .unwrap();
        let reply = String::from_utf8(output.stdout).unwrap().to_lowercase();
        assert!(reply.starts_with("http/1.1 200"), "{reply}");
        let has = |field: &str| assert!(reply.contains(field), "{path}: {field}");
        has("\r\ncontent-security-policy: default-src 'none'; script-src 'self';");
        has("\r\ncache-control: no-cache\r\n");
        has("\r\netag: ");
        if path == "dashboard.js" {
            has("\r\ncontent-encoding: ");
        }
    }
    assert_eq!(get(([127, 0, 0, 1], admin).into(), "/other.js").status, 404);
}

#[test]
fn chromium_shows_the_log_in_without_a_fault() {
    let home = Home::new();
    let (_apus, admin) = serve(&home);
    let output = program("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=10000"])
        .arg(format!(
            "--user-data-dir={}",
            home.path("profile").display()
        ))
        .arg("--dump-dom")
        .arg(format!("http://127.0.0.1:{admin}/"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    assert!(dom.contains("type=\"password\""), "{dom}");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(!messages.contains(":CONSOLE"), "{messages}");
}

#[test]
fn a_link_is_used_by_the_page_in_chromium_and_firefox() {
    for is_firefox in [false, true] {
        let home = Home::new();
        let (apus, admin) = serve(&home);
        let url = format!("http://127.0.0.1:{admin}/#code=0123456789abcdef");
        let profile = home.path("profile");
        let _browser = if is_firefox {
            RunningBrowser::firefox(&profile, true, &url)
        } else {
            RunningBrowser::chromium(&profile, true, &url)
        };
        // The page sends the code, which nobody has made.
        apus.wait_for_log("a log-in at `admin_listen` failed");
    }
}
