//! The address of the operator: metrics over HTTP, who may read them, reloads, and a real Prometheus.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{fs, thread};

use apus_testkit::{CertificateAuthority, IssuedCertificate};
use serde_json::Value;

use crate::harness::{Apus, Home, connect, free_port, get, get_unix, is_open, wait_until};
use crate::wire::Wire;

/// The sum of the samples whose lines begin so.
fn value(metrics: &str, sample: &str) -> f64 {
    let lines = metrics.lines().filter(|line| line.starts_with(sample));
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

fn metrics(admin: SocketAddr) -> String {
    let reply = get(admin, "/metrics");
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.body
}

/// Waits until samples have a value: a worker counts a request after it has sent the response.
fn wait_for(admin: SocketAddr, sample: &str, expected: f64) {
    let mut text = String::new();
    wait_until(&format!("{sample} is {expected}"), || {
        text = metrics(admin);
        value(&text, sample) >= expected
    });
    assert_eq!(value(&text, sample), expected, "{sample} in {text}");
}

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

/// The status of the response to a request with these lines behind the first.
fn ask(address: SocketAddr, line: &str, fields: &str) -> u16 {
    let mut stream = connect(address);
    write!(
        stream,
        "{line} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

/// A site over all protocols with an address of the operator. Returns that.
fn serve(home: &Home, global: &str) -> (Apus, SocketAddr, u16) {
    let authority = CertificateAuthority::named("One");
    let server = authority.ecdsa(&["localhost"]);
    home.write("key.pem", &server.key);
    home.write("cert.pem", &server.pem);
    home.write("authority.pem", &authority.pem);
    let [clear, tls, admin] = [free_port(), free_port(), free_port()];
    home.write(
        "apus.toml",
        format!(
            r#"
[global]
worker_threads = 2
control_socket = "control.sock"
admin_listen = "127.0.0.1:{admin}"
{global}
[[sites]]
name = "shop"
server_name = "localhost"
listen = "127.0.0.1:{clear}"
listen_tls = "127.0.0.1:{tls}"
root = "site"
tls = {{ cert = "cert.pem", key = "key.pem", protocols = ["h3", "h2", "http/1.1"] }}

[[sites.locations]]
path = "/made/"
return = {{ status = 200, text = "made" }}
"#
        ),
    );
    let apus = home.serve(&["apus.toml"]);
    (apus, local(admin), tls)
}

#[test]
fn requests_are_counted_by_site_location_method_and_status_over_every_protocol() {
    let home = Home::new();
    let (apus, admin, tls) = serve(&home, "");
    let curl = |version: &str, arguments: &[&str]| {
        let output = Command::new("curl")
            .args(["-s", "-m", "20", "--cacert", "authority.pem", version])
            .args(arguments)
            .current_dir(home.path("."))
            .output()
            .unwrap();
        output.status.success()
    };
    let url = |path: &str| format!("https://localhost:{tls}{path}");
    let has_http3 = curl("--http3-only", &[&url("/made/three")]);
    let mut made = f64::from(has_http3);
    for version in ["--http1.1", "--http2"] {
        assert!(curl(version, &[&url("/made/a"), &url("/made/b")]));
        assert!(curl(version, &["-d", "12345", &url("/made/c")]));
        assert!(curl(version, &["-X", "BREW", &url("/made/d")]));
        assert!(curl(version, &[&url("/nothing")]));
        made += 3.0;
    }
    let requests = |method: &str, status: &str| {
        format!("apus_http_requests_total{{site=\"shop\",method=\"{method}\",status=\"{status}\"}}")
    };
    wait_for(admin, "apus_http_requests_total{", made + 4.0);
    let text = metrics(admin);
    let reads = made - 2.0;
    let location = |location: &str, status: &str| {
        format!(
            "apus_http_location_requests_total{{site=\"shop\",location=\"{location}\",status=\"{status}\"}}"
        )
    };
    for (sample, expected) in [
        (requests("read", "2xx"), reads),
        (requests("write", "2xx"), 2.0),
        (requests("read", "4xx"), 2.0),
        (requests("other", "2xx"), 2.0),
        (location("/made/", "2xx"), made + 2.0),
        (location("/", "4xx"), 2.0),
        (
            "apus_http_request_bytes_total{site=\"shop\"}".to_owned(),
            10.0,
        ),
        (
            "apus_http_requests_in_flight{site=\"shop\"}".to_owned(),
            0.0,
        ),
        (
            "apus_http_request_duration_seconds_count{site=\"shop\"}".to_owned(),
            made + 4.0,
        ),
        (
            "apus_http_time_to_first_byte_seconds_bucket{site=\"shop\",le=\"+Inf\"}".to_owned(),
            made + 4.0,
        ),
        (
            "apus_tls_handshakes_total{worker=\"0\",result=\"failed\"}".to_owned(),
            0.0,
        ),
    ] {
        assert_eq!(value(&text, &sample), expected, "{sample} in {text}");
    }
    // Requests for the metrics are no requests of a site.
    assert_eq!(
        value(&metrics(admin), "apus_http_requests_total{"),
        made + 4.0
    );
    // Counters outlive a reload.
    home.expect(&["reload", "--socket", "control.sock"], 0);
    assert_eq!(apus.get("/made/again").status, 200);
    wait_for(admin, "apus_http_requests_total{", made + 5.0);
    // An explanation is no request of a client.
    home.expect(
        &["explain", "GET", &url("/made/e"), "--config", "apus.toml"],
        0,
    );
    wait_for(admin, "apus_http_requests_total{", made + 5.0);
    let (printed, _) = home.expect(&["status", "--metrics", "--socket", "control.sock"], 0);
    assert_eq!(value(&printed, "apus_http_requests_total{"), made + 5.0);
    assert_eq!(value(&printed, "apus_reloads_total"), 1.0);
}

#[test]
fn a_client_that_leaves_before_the_response_is_counted_once() {
    let home = Home::new();
    let [front, admin] = [free_port(), free_port()];
    // An origin that never responds.
    let origin = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let origin_address = origin.local_addr().unwrap();
    home.write(
        "apus.toml",
        format!(
            "[global]\nadmin_listen = \"127.0.0.1:{admin}\"\n\
             [[sites]]\nname = \"slow\"\nlisten = \"127.0.0.1:{front}\"\nupstream = \"http://{origin_address}\"\n"
        ),
    );
    let apus = home.serve(&["apus.toml"]);
    let admin = local(admin);
    let mut wire = Wire::connect(apus.address());
    wire.send("POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nab");
    let (mut held, _) = origin.accept().unwrap();
    let mut byte = [0];
    held.read_exact(&mut byte).unwrap();
    wait_for(admin, "apus_http_requests_in_flight{site=\"slow\"}", 1.0);
    wire.reset();
    let left = "apus_http_requests_total{site=\"slow\",method=\"write\",status=\"none\"}";
    wait_for(admin, left, 1.0);
    let text = metrics(admin);
    assert_eq!(
        value(&text, "apus_http_requests_in_flight{site=\"slow\"}"),
        0.0
    );
    assert_eq!(value(&text, "apus_http_requests_total{"), 1.0);
}

#[test]
fn the_address_is_for_the_operator_alone() {
    let home = Home::new();
    let (_apus, admin, _) = serve(&home, "admin_names = \"apus.internal\"");
    let port = admin.port();
    let metrics = "GET /metrics";
    for (line, fields, expected) in [
        (metrics, format!("Host: 127.0.0.1:{port}\r\n"), 200),
        (metrics, "Host: localhost\r\n".to_owned(), 200),
        (metrics, "Host: LOCALHOST.\r\n".to_owned(), 200),
        (metrics, "Host: [::1]\r\n".to_owned(), 200),
        (metrics, format!("Host: Apus.Internal:{port}\r\n"), 200),
        // A page of a name that resolves to this machine (DNS rebinding).
        (metrics, "Host: evil.example\r\n".to_owned(), 403),
        (metrics, "Host: localhost.evil.example\r\n".to_owned(), 403),
        (metrics, "Host: 127.0.0.1.evil.example\r\n".to_owned(), 403),
        (
            "GET http://evil.example/metrics",
            "Host: localhost\r\n".to_owned(),
            403,
        ),
        (metrics, "Host:\r\n".to_owned(), 403),
        // A page of another site, and of this address.
        (
            metrics,
            "Host: localhost\r\nOrigin: http://evil.example\r\n".to_owned(),
            403,
        ),
        (
            metrics,
            "Host: localhost\r\nOrigin: null\r\n".to_owned(),
            403,
        ),
        (
            metrics,
            "Host: localhost\r\nOrigin: http://localhost\r\n".to_owned(),
            200,
        ),
        (
            metrics,
            "Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://a.example\r\n"
                .to_owned(),
            403,
        ),
        ("GET /status", "Host: localhost\r\n".to_owned(), 200),
        ("GET /", "Host: localhost\r\n".to_owned(), 200),
        ("HEAD /metrics", "Host: localhost\r\n".to_owned(), 200),
        ("GET /metrics?a=b", "Host: localhost\r\n".to_owned(), 200),
        (
            "POST /metrics",
            "Host: localhost\r\nContent-Length: 0\r\n".to_owned(),
            405,
        ),
        ("GET /other", "Host: localhost\r\n".to_owned(), 404),
        ("GET /metrics/", "Host: localhost\r\n".to_owned(), 404),
        ("GET /%6detrics", "Host: localhost\r\n".to_owned(), 404),
    ] {
        assert_eq!(ask(admin, line, &fields), expected, "{line} {fields}");
    }
    let formats = Command::new("curl")
        .args([
            "-s",
            "--compressed",
            "-D",
            "-",
            "-H",
            "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
        ])
        .arg(format!("http://{admin}/metrics"))
        .output()
        .unwrap();
    let text = String::from_utf8(formats.stdout)
        .unwrap()
        .to_ascii_lowercase();
    for part in [
        "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n",
        "content-encoding: ",
        "cache-control: no-store\r\n",
        "# eof\n",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let (status, _) = home.expect(&["status", "--json", "--socket", "control.sock"], 0);
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(
        status["admin_listening"],
        serde_json::json!([admin.to_string()])
    );
}

#[test]
fn other_networks_are_refused_and_a_unix_socket_is_for_the_user_of_the_server() {
    let home = Home::new();
    let [site, admin] = [free_port(), free_port()];
    home.write(
        "apus.toml",
        format!(
            "[global]\nadmin_listen = [\"127.0.0.1:{admin}\", \"unix:admin.sock\"]\nadmin_allow = [\"127.0.0.9\", \"unix:\"]\n\
             [[sites]]\nlisten = \"127.0.0.1:{site}\"\nroot = \"site\"\n"
        ),
    );
    let apus = home.serve(&["apus.toml"]);
    // The connection is closed before anything is read of it, as soon as it is accepted.
    let mut refused = connect(local(admin));
    let _ = refused.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut received = Vec::new();
    let _ = refused.read_to_end(&mut received);
    assert!(received.is_empty(), "{received:?}");
    apus.wait_for_log("`admin_allow` does not name the client");
    let socket = home.path("admin.sock");
    assert_eq!(get_unix(&socket, "/metrics").status, 200);
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Without `unix:` among the networks, nobody may use it, as soon as a reload says so.
    let text = home.read("apus.toml");
    home.write("apus.toml", text.replace(", \"unix:\"]", "]"));
    home.expect(&["reload"], 0);
    assert_eq!(get_unix(&socket, "/metrics").status, 403);
}

#[test]
fn a_reload_turns_the_address_on_elsewhere_and_off_and_keeps_it_after_mistakes() {
    let home = Home::new();
    let [site, first, second, taken] = [free_port(), free_port(), free_port(), free_port()];
    let write = |global: &str| {
        home.write(
            "apus.toml",
            format!(
                "[global]\ncontrol_socket = \"control.sock\"\n{global}\n[[sites]]\nname = \"a\"\nlisten = \"127.0.0.1:{site}\"\nroot = \"site\"\n"
            ),
        );
    };
    let reload = |status| {
        home.expect(&["reload", "--socket", "control.sock"], status)
            .1
    };
    let is_open = |port| is_open(local(port));
    write("");
    let apus = home.serve(&["apus.toml"]);
    let (printed, _) = home.expect(&["status", "--metrics", "--socket", "control.sock"], 0);
    assert_eq!(
        value(&printed, "apus_http_requests_total{"),
        0.0,
        "nothing is counted"
    );
    assert!(!is_open(first));
    write(&format!("admin_listen = \"127.0.0.1:{first}\""));
    reload(0);
    assert_eq!(apus.get("/").status, 200);
    wait_for(local(first), "apus_http_requests_total{site=\"a\"", 1.0);
    write(&format!("admin_listen = \"127.0.0.1:{second}\""));
    reload(0);
    wait_for(local(second), "apus_http_requests_total{site=\"a\"", 1.0);
    wait_until("the first address is closed", || !is_open(first));
    // An address of another process.
    let other = std::net::TcpListener::bind(local(taken)).unwrap();
    write(&format!("admin_listen = \"127.0.0.1:{taken}\""));
    let why = reload(1);
    assert!(why.contains(&taken.to_string()), "{why}");
    drop(other);
    write(&format!("admin_listen = \"127.0.0.1:{site}\""));
    let why = reload(1);
    assert!(why.contains("a site listens on this address, too"), "{why}");
    wait_for(local(second), "apus_http_requests_total{site=\"a\"", 1.0);
    write("");
    reload(0);
    wait_until("the second address is closed", || !is_open(second));
    assert_eq!(apus.get("/").status, 200);
}

#[test]
fn no_sum_over_sites_falls_when_a_reload_removes_one() {
    let home = Home::new();
    let [first, second, admin] = [free_port(), free_port(), free_port()];
    let write = |sites: &[(&str, u16)]| {
        let sites = sites.iter().map(|(name, port)| {
            format!(
                "[[sites]]\nname = \"{name}\"\nlisten = \"127.0.0.1:{port}\"\nroot = \"site\"\n"
            )
        });
        home.write(
            "apus.toml",
            format!(
                "[global]\ncontrol_socket = \"control.sock\"\nadmin_listen = \"127.0.0.1:{admin}\"\n{}",
                sites.collect::<String>()
            ),
        );
    };
    write(&[("a", first), ("b", second)]);
    let _apus = home.serve(&["apus.toml"]);
    for (port, requests) in [(first, 2), (second, 3)] {
        for _ in 0..requests {
            assert_eq!(get(local(port), "/").status, 200);
        }
    }
    let admin = local(admin);
    wait_for(admin, "apus_http_requests_total{site=\"b\"", 3.0);
    wait_for(admin, "apus_http_requests_total{", 5.0);
    write(&[("a", first)]);
    home.expect(&["reload", "--socket", "control.sock"], 0);
    let text = metrics(admin);
    assert_eq!(value(&text, "apus_http_requests_total{site=\"other\""), 3.0);
    assert_eq!(value(&text, "apus_http_requests_total{"), 5.0);
    assert_eq!(get(local(first), "/").status, 200);
    wait_for(admin, "apus_http_requests_total{", 6.0);
}

#[test]
fn the_operator_is_served_when_the_connections_of_the_sites_are_used_up() {
    let home = Home::new();
    let (apus, admin, _) = serve(&home, "max_connections = 4");
    let mut held: Vec<_> = (0..4).map(|_| connect(apus.address())).collect();
    for stream in &mut held {
        stream.write_all(b"GET /slow HTTP/1.1\r\n").unwrap();
    }
    wait_until("no connection is left", || {
        value(&metrics(admin), "apus_connections{") >= 4.0
    });
    let mut refused = connect(apus.address());
    let _ = refused.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    wait_for(
        admin,
        "apus_connections_refused_total{worker=\"0\",reason=\"limit\"}",
        {
            let mut seen = 0.0;
            wait_until("a connection is refused", || {
                let text = metrics(admin);
                seen = value(
                    &text,
                    "apus_connections_refused_total{worker=\"0\",reason=\"limit\"}",
                );
                value(&text, "apus_connections_refused_total{") >= 1.0
            });
            seen
        },
    );
}

#[test]
fn certificates_of_files_say_when_they_expire_each_once_and_also_after_they_are_replaced() {
    let home = Home::new();
    let [site, admin] = [free_port(), free_port()];
    let install = |name: &str, to: i32| {
        let certificate = IssuedCertificate::self_signed(&["localhost"], 2020, to);
        home.write(&format!("{name}.key"), &certificate.key);
        home.write(&format!("{name}.pem"), &certificate.pem);
    };
    install("one", 2090);
    install("two", 2091);
    let sites = [("a", "one"), ("b", "one"), ("c", "two")].map(|(name, file)| {
        format!(
            "[[sites]]\nname = \"{name}\"\nserver_name = \"{name}.localhost\"\nlisten_tls = \"127.0.0.1:{site}\"\nroot = \"site\"\n\
             tls = {{ cert = \"{file}.pem\", key = \"{file}.key\" }}\n"
        )
    });
    home.write(
        "apus.toml",
        format!(
            "[global]\nadmin_listen = \"127.0.0.1:{admin}\"\n{}",
            sites.concat()
        ),
    );
    let _apus = home.serve(&["apus.toml"]);
    let admin = local(admin);
    let expiry = |file: &str| {
        let text = metrics(admin);
        let mut lines = text.lines().filter(|line| {
            line.starts_with("apus_certificate_file_expiry_timestamp_seconds{")
                && line.contains(&format!("/{file}.pem\"}} "))
        });
        let line = lines.next().unwrap_or_else(|| panic!("{file} in {text}"));
        assert_eq!(lines.next(), None, "one series for each file");
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    // The first of January, in UTC.
    assert_eq!(expiry("one"), 3_786_912_000.0);
    assert_eq!(expiry("two"), 3_818_448_000.0);
    install("one", 2091);
    wait_until("the new certificate is in use", || {
        expiry("one") == 3_818_448_000.0
    });
}

/// A Prometheus that ends with the test.
struct Prometheus {
    process: Child,
    address: SocketAddr,
}

impl Prometheus {
    fn start(home: &Home, targets: &[SocketAddr]) -> Self {
        let address = local(free_port());
        let targets: Vec<_> = targets
            .iter()
            .map(|target| format!("\"{target}\""))
            .collect();
        home.write(
            "prometheus.yml",
            format!(
                "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
                 rule_files: [\"{}\"]\n\
                 scrape_configs: [{{job_name: apus, static_configs: [{{targets: [{}]}}]}}]\n",
                contrib("prometheus/alerts.yml").display(),
                targets.join(", ")
            ),
        );
        let log = fs::File::create(home.path("prometheus.log")).unwrap();
        let process = Command::new("prometheus")
            .arg(format!(
                "--config.file={}",
                home.path("prometheus.yml").display()
            ))
            .arg(format!(
                "--storage.tsdb.path={}",
                home.path("tsdb").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("run `make tools`");
        Self { process, address }
    }

    /// The samples of an instant query; none while it does not respond.
    fn query(&self, query: &str) -> Vec<Value> {
        let output = Command::new("curl")
            .args(["-s", "-m", "20", "-G", "--data-urlencode"])
            .arg(format!("query={query}"))
            .arg(format!("http://{}/api/v1/query", self.address))
            .output()
            .unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let result = answer["data"]["result"].as_array();
        result.cloned().unwrap_or_default()
    }

    /// Waits until a query has one sample with this value.
    fn wait_for(&self, home: &Home, query: &str, expected: &str) {
        let mut seen = Vec::new();
        let what = format!("Prometheus has {query} = {expected}");
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(&what, || {
                seen = self.query(query);
                matches!(seen.as_slice(), [one] if one["value"][1] == expected)
            });
        }));
        assert!(
            waited.is_ok(),
            "{what}: {seen:?}\n{}",
            home.read("prometheus.log")
        );
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn contrib(name: &str) -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../contrib");
    folder.canonicalize().unwrap().join(name)
}

/// The output of promtool, which has to find nothing wrong.
fn promtool(arguments: &[&str], input: &str) {
    let mut process = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("run `make tools`");
    let mut stdin = process.stdin.take().unwrap();
    let input = input.to_owned();
    let writing = thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = process.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {said}");
    assert!(arguments[1] == "rules" || said.is_empty(), "{said}");
}

#[test]
fn a_real_prometheus_reads_all_metrics_and_the_alerts() {
    let home = Home::new();
    let (apus, admin, _) = serve(&home, "");
    let prometheus = Prometheus::start(&home, &[admin]);
    for _ in 0..7 {
        assert_eq!(apus.get("/made/x").status, 200);
    }
    promtool(&["check", "metrics"], &metrics(admin));
    promtool(
        &[
            "check",
            "rules",
            contrib("prometheus/alerts.yml").to_str().unwrap(),
        ],
        "",
    );
    prometheus.wait_for(&home, "up", "1");
    prometheus.wait_for(
        &home,
        "sum(apus_http_requests_total{site=\"shop\",status=\"2xx\"})",
        "7",
    );
    prometheus.wait_for(
        &home,
        "apus_http_request_duration_seconds_count{site=\"shop\"}",
        "7",
    );
    prometheus.wait_for(&home, "count(ALERTS) or vector(0)", "0");
    // The server responds no more: an alert that says so.
    drop(apus);
    prometheus.wait_for(&home, "count(ALERTS{alertname=\"ApusDown\"})", "1");
}
