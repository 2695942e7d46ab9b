//! A server in front of PHP-FPM: Apus, or nginx to compare it with.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};

use super::source;
use crate::clients::{certificate, program};
use crate::harness::{Apus, Home, free_port, is_open, wait_until};

/// The served site: lines of a site of Apus, and equivalent locations of nginx.
pub(crate) struct Site<'a> {
    pub(crate) host: &'static str,
    pub(crate) root: &'a Path,
    pub(crate) socket: &'a Path,
    pub(crate) apus: &'a str,
    pub(crate) nginx: &'a str,
}

/// A running server.
pub(crate) struct Server {
    host: &'static str,
    clear: SocketAddr,
    tls: SocketAddr,
    running: Running,
    pub(crate) home: Home,
}

enum Running {
    Apus(Apus),
    Nginx(Child),
}

impl Server {
    pub(crate) fn apus(site: &Site<'_>) -> Self {
        let home = Home::new();
        certificate(&home, "site", site.host);
        let [clear, tls] = [free_port(), free_port()].map(local);
        let mut text = String::from("[[sites]]\n");
        let _ = write!(
            text,
            "server_name = [\"{}\"]\nlisten = [\"{clear}\"]\nlisten_tls = [\"{tls}\"]\n\
             tls = {{ cert = \"site.pem\", key = \"site.key\" }}\nroot = \"{}\"\n\
             php_fastcgi = \"{}\"\n{}\n",
            site.host,
            site.root.display(),
            site.socket.display(),
            site.apus,
        );
        home.write("apus.toml", text);
        let apus = home.serve(&[]);
        Self {
            host: site.host,
            clear,
            tls,
            running: Running::Apus(apus),
            home,
        }
    }

    /// Starts nginx, which has no HTTP/2 in clear text here.
    pub(crate) fn nginx(site: &Site<'_>) -> Self {
        let home = Home::new();
        certificate(&home, "site", site.host);
        let [clear, tls] = [free_port(), free_port()].map(local);
        let configuration = fs::read_to_string(source("nginx.conf"))
            .unwrap()
            .replace("FOLDER", home.path("").to_str().unwrap())
            .replace("TLS", &tls.port().to_string())
            .replace("PORT", &clear.port().to_string())
            .replace("HOST", site.host)
            .replace("ROOT", site.root.to_str().unwrap())
            .replace("SOCKET", site.socket.to_str().unwrap())
            .replace("LOCATIONS", site.nginx);
        let file = home.write("nginx.conf", configuration);
        let child = program("/usr/sbin/nginx")
            .arg("-c")
            .arg(file)
            .arg("-e")
            .arg(home.path("nginx.log"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("nginx listens", || is_open(clear));
        Self {
            host: site.host,
            clear,
            tls,
            running: Running::Nginx(child),
            home,
        }
    }

    pub(crate) fn host(&self) -> &'static str {
        self.host
    }

    pub(crate) fn clear(&self) -> SocketAddr {
        self.clear
    }

    /// The log of Apus so far.
    pub(crate) fn log(&self) -> String {
        match &self.running {
            Running::Apus(apus) => apus.log(),
            Running::Nginx(_) => panic!("nginx has its log in a file"),
        }
    }

    /// Waits until the log of Apus contains the text, and returns it.
    pub(crate) fn wait_for_log(&self, text: &str) -> String {
        match &self.running {
            Running::Apus(apus) => apus.wait_for_log(text),
            Running::Nginx(_) => panic!("nginx has its log in a file"),
        }
    }

    /// The resident memory of the server in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let pid = match &self.running {
            Running::Apus(apus) => apus.pid(),
            Running::Nginx(child) => child.id(),
        };
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kilobytes.unwrap() << 10
    }

    pub(crate) fn tls(&self) -> SocketAddr {
        self.tls
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Running::Nginx(child) = &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
