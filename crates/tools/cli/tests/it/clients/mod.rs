//! Real clients: curl, nghttp, aioquic, quic-go, load generators and a browser.

mod browser;
mod challenge;
mod curl;
mod dashboard;
mod driven_browser;
mod http3;
mod load;
mod nghttp;
mod running_browser;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) use curl::{Curl, Reply};
pub(crate) use http3::quic_go;
pub(crate) use load::h2load;

use crate::harness::{Apus, Home, free_port};

/// A program that `make tools` installs.
pub(crate) fn program(name: &str) -> Command {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()));
    assert!(found, "{name} is missing: run `make tools`");
    Command::new(name)
}

/// Makes `FILE.pem` and `FILE.key`: a self-signed certificate for a name.
pub(crate) fn certificate(home: &Home, file: &str, name: &str) {
    let settings = home.write(
        "openssl.cnf",
        format!(
            "[req]\nprompt = no\ndistinguished_name = subject\nx509_extensions = own\n\
             [subject]\nCN = {name}\n[own]\nbasicConstraints = critical, CA:FALSE\n\
             subjectAltName = DNS:{name}\n"
        ),
    );
    let output = program("openssl")
        .args(["req", "-x509", "-nodes", "-days", "30", "-newkey", "ec"])
        .args(["-pkeyopt", "ec_paramgen_curve:P-256", "-config"])
        .arg(settings)
        .arg("-keyout")
        .arg(home.path(&format!("{file}.key")))
        .arg("-out")
        .arg(home.path(&format!("{file}.pem")))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A server with the example site, in clear text and with a certificate of the local authority, and with a
/// site that has a large file.
struct ExampleSite {
    home: Home,
    _apus: Apus,
    http: String,
    https: String,
    downloads: String,
}

/// The size of the large file.
const LARGE: usize = 20 << 20;

impl ExampleSite {
    fn serve() -> Self {
        let home = Home::new();
        // The file repeats no part.
        let large: Vec<u8> = (0..LARGE / 8)
            .flat_map(|number| format!("{number:07}\n").into_bytes())
            .collect();
        home.write("site/large.csv", large);
        // The user of the server may not be able to read the checkout.
        copy(&example_site(), &home.path("example"));
        let port = free_port();
        home.write(
            "apus.toml",
            format!(
                "include = [\"example/apus.toml\"]\n[global]\n\
                 access_log = {{ path = \"access.log\", format = \"$status $scheme $request_uri\" }}\n\
                 [[sites]]\nlisten = [\"127.0.0.1:{port}\"]\nroot = \"site\"\n"
            ),
        );
        let mut command = home.command(&["serve", "--tls"]);
        command.env("APUS_HTTP_PORT", free_port().to_string());
        command.env("APUS_HTTPS_PORT", free_port().to_string());
        let apus = Apus::start(command);
        let downloads = format!("http://127.0.0.1:{port}");
        let origin = |scheme: &str| {
            let mut urls = apus.urls().iter().map(|url| url.trim_end_matches('/'));
            let url = urls.find(|url| url.starts_with(scheme) && **url != *downloads);
            url.unwrap().replace("127.0.0.1", "localhost")
        };
        Self {
            http: origin("http:"),
            https: origin("https:"),
            downloads,
            home,
            _apus: apus,
        }
    }

    /// The origins of the example site: in clear text and over TLS.
    fn origins(&self) -> [&str; 2] {
        [&self.http, &self.https]
    }

    /// curl that trusts the local authority.
    fn curl(&self) -> Curl {
        let authority = self.home.path(".local/share/apus/ca/root.pem");
        Curl::new().args(&["--cacert", authority.to_str().unwrap()])
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn example_site() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/site")
}
