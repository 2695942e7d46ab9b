//! The same scripts behind nginx with PHP-FPM, behind Apus with PHP-FPM, and in resident workers: every response is
//! compared, byte by byte but for the differences of docs/php.md.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;

use super::server::{Server, Site};
use super::stack::Stack;
use crate::clients::program;
use crate::harness::{Apus, Home, free_port};
use crate::wire::Wire;

const HOST: &str = "differential.test";

/// Where a script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Nginx,
    FastCgi,
    /// A resident worker in a `php-cgi` of the server, where functions of PHP are replaced.
    PhpCgi,
    /// A resident worker in PHP-FPM as it is installed.
    Fpm,
}

/// The resident workers: the program, the mode, and the script of the application.
const WORKERS: [(Door, &str, &str, &str); 5] = [
    (Door::PhpCgi, "classic", "/index.php", ""),
    (Door::PhpCgi, "classic", "/fresh.php", ""),
    (Door::PhpCgi, "worker", "/index.php", "/worker.php"),
    (Door::Fpm, "classic", "/index.php", ""),
    (Door::Fpm, "worker", "/index.php", "/worker.php"),
];

/// The servers, and the address and name of each door.
struct Doors {
    _nginx: Server,
    apus: (Home, Apus),
    all: Vec<(Door, String, SocketAddr)>,
    /// All differences so far, which the test reports at its end.
    differences: RefCell<String>,
}

fn open_doors(stack: &Stack) -> Doors {
    let root = stack.path("differential");
    let nginx = Server::nginx(&Site {
        host: HOST,
        root: &root,
        socket: &stack.socket(),
        apus: "",
        nginx: "location / { try_files $uri /index.php$is_args$args; }",
    });
    let mut all = vec![(Door::Nginx, "nginx".to_owned(), nginx.clear())];
    let mut text = String::new();
    let mut site = |php: &Path, fastcgi: &str| {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let _ = write!(
            text,
            "[[sites]]\nserver_name = \"{HOST}\"\nlisten = [\"{address}\"]\nroot = \"{}\"\n\
             php_fastcgi = \"{}\"\nfastcgi = {{ {fastcgi} }}\n",
            root.display(),
            php.display(),
        );
        address
    };
    let address = site(&stack.socket(), "front_controller = \"/index.php\"");
    all.push((Door::FastCgi, "FastCGI".to_owned(), address));
    for (door, mode, front, script) in WORKERS {
        let php = match door {
            Door::PhpCgi => Path::new("/usr/bin/php-cgi8.2").to_owned(),
            _ => stack.socket(),
        };
        let script = match script {
            "" => String::new(),
            script => format!(", script = \"{script}\""),
        };
        // A separate worker would wait for a process while the one before it ends.
        let max = if front == "/fresh.php" { 2 } else { 1 };
        let address = site(
            &php,
            &format!(
                "front_controller = \"{front}\", \
                 workers = {{ min = 1, max = {max}, mode = \"{mode}\"{script} }}"
            ),
        );
        all.push((door, format!("{door:?} {mode} {front}"), address));
    }
    let home = Home::new();
    home.write("apus.toml", text);
    let apus = home.serve(&[]);
    Doors {
        _nginx: nginx,
        apus: (home, apus),
        all,
        differences: RefCell::default(),
    }
}

/// A response without what differs between servers for every response.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Comparable {
    /// Without the reason phrase, which has no meaning (RFC 9112 section 4).
    status: u16,
    fields: BTreeMap<String, Vec<String>>,
    body: String,
}

/// Fields of the server, and of the framing of the message.
const SERVER_FIELDS: [&str; 6] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "server",
    "transfer-encoding",
];

/// The response of a door.
fn response(address: SocketAddr, request: &[u8]) -> Comparable {
    let mut wire = Wire::connect(address);
    assert!(wire.send(request));
    let received = if request.starts_with(b"HEAD ") {
        wire.read_head()
    } else {
        wire.read()
    };
    let mut fields = BTreeMap::<String, Vec<String>>::new();
    for line in received.head.iter().skip(1) {
        let (name, value) = line.split_once(':').unwrap();
        let value = value.trim_start_matches(' ');
        // Servers that compress name it.
        let is_coding = name == "vary" && value.eq_ignore_ascii_case("accept-encoding");
        if !SERVER_FIELDS.contains(&name) && !is_coding {
            let values = fields.entry(name.to_ascii_lowercase()).or_default();
            values.push(comparable_value(name, value));
        }
    }
    Comparable {
        status: received.status,
        fields,
        body: received.text(),
    }
}

/// The value of a field without what differs each time.
fn comparable_value(name: &str, value: &str) -> String {
    match name {
        "set-cookie" if value.starts_with("PHPSESSID=") => {
            let (_, attributes) = value.split_once("; ").unwrap_or_default();
            format!("PHPSESSID; {attributes}")
        }
        "set-cookie" => {
            let parts = value.split("; ");
            let parts = parts.map(|part| part.split_once("expires=").map_or(part, |_| "expires"));
            parts.collect::<Vec<_>>().join("; ")
        }
        "expires" if !value.contains(" 1981 ") && value.ends_with(" GMT") => "a date".to_owned(),
        _ => value.to_owned(),
    }
}

/// The target with what is not allowed there percent-encoded.
fn target(readable: &str) -> String {
    let mut encoded = String::new();
    for byte in readable.bytes() {
        match byte {
            b'!'..=b'~' if !b"[]\"\\<>^`{|}".contains(&byte) => encoded.push(byte.into()),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

fn request(line: &str, fields: &[&str], body: &[u8]) -> Vec<u8> {
    let (method, readable) = line.split_once(' ').unwrap();
    let mut text = format!("{method} {} HTTP/1.1\r\nHost: {HOST}\r\n", target(readable));
    for field in fields {
        let _ = write!(text, "{field}\r\n");
    }
    if method == "POST" || !body.is_empty() {
        let _ = write!(text, "Content-Length: {}\r\n", body.len());
    }
    text += "\r\n";
    [text.as_bytes(), body].concat()
}

fn get(readable: &str) -> Vec<u8> {
    request(&format!("GET {readable}"), &[], b"")
}

fn post(readable: &str, kind: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let kind = format!("Content-Type: {kind}");
    request(&format!("POST {readable}"), &[&kind], body.as_ref())
}

/// A form with these parts: the head and the data of each.
fn form(parts: &[(&str, &str)]) -> Vec<u8> {
    let mut body = String::new();
    for (head, data) in parts {
        let _ = write!(
            body,
            "--bb\r\nContent-Disposition: form-data; {head}\r\n\r\n{data}\r\n"
        );
    }
    (body + "--bb--\r\n").into_bytes()
}

const FORM: &str = "multipart/form-data; boundary=bb";

/// Sends requests to all doors at once, and notes each response that differs from nginx's, where `is_compared`.
fn compare(doors: &Doors, requests: &[Vec<u8>], is_compared: impl Fn(Door, &[u8]) -> bool) {
    let all = thread::scope(|scope| {
        let running = doors.all.iter().map(|(_, name, address)| {
            let address = *address;
            // A process for each request is slow to start.
            let step = if name.contains("fresh") { 3 } else { 1 };
            scope.spawn(move || {
                let some = requests.iter().enumerate().step_by(step);
                let some = some.map(|(at, request)| (at, response(address, request)));
                some.collect::<Vec<_>>()
            })
        });
        let running: Vec<_> = running.collect();
        let all = running.into_iter().map(|each| each.join().unwrap());
        all.collect::<Vec<_>>()
    });
    let mut differences = doors.differences.borrow_mut();
    for ((door, name, _), responses) in doors.all.iter().zip(&all) {
        for (at, response) in responses {
            let (request, (_, expected)) = (&requests[*at], &all[0][*at]);
            if response != expected && is_compared(*door, request) {
                let request = String::from_utf8_lossy(request);
                let _ = write!(
                    differences,
                    "\n{request}\n  nginx: {expected:.900?}\n  {name}: {response:.900?}"
                );
            }
        }
    }
}

#[test]
fn responses_are_the_same_behind_nginx_and_fastcgi_and_from_resident_workers() {
    let stack = Stack::php(8);
    let doors = open_doors(&stack);
    an_empty_default_mimetype_and_a_304_have_no_type(&doors);
    statuses_and_fields_are_those_of_the_script(&doors);
    a_buffer_of_php_ini_is_there_for_ob_end_clean_before_a_download(&doors);
    errors_and_exits_have_the_status_and_the_output_of_php(&doors);
    names_within_quoted_strings_of_a_form_are_no_names(&doors);
    the_body_can_be_read_through_filters_and_is_never_included(&doors);
    sessions_and_states_are_those_of_the_request(&doors);
    the_written_differences_are_the_only_ones(&doors);
    functions_of_frankenphp_send_early_hints_and_write_log_lines(&doors);
    let differences = doors.differences.take();
    let shown: String = differences.chars().take(10_000).collect();
    assert!(differences.is_empty(), "{shown}");
}

fn an_empty_default_mimetype_and_a_304_have_no_type(doors: &Doors) {
    let mut requests = Vec::new();
    for mimetype in [
        "",
        "&ini[default_mimetype]=",
        "&ini[default_mimetype]=application/json",
        "&ini[default_mimetype]=Text/X",
    ] {
        for charset in [
            "",
            "&ini[default_charset]=",
            "&ini[default_charset]=iso-8859-1",
        ] {
            for field in [
                "",
                "&header[]=Content-Type: text/css",
                "&header[]=Content-Type: application/pdf",
                "&header[]=content-type:text/xml;charset=x",
                "&header[]=Content-Type:",
            ] {
                for status in ["200", "204", "304"] {
                    requests.push(get(&format!(
                        "/respond?status={status}{mimetype}{charset}{field}"
                    )));
                }
            }
        }
    }
    compare(doors, &requests, |_, _| true);
}

fn statuses_and_fields_are_those_of_the_script(doors: &Doors) {
    let mut requests = Vec::new();
    for query in [
        "header[]=HTTP/1.1 404 Not Found",
        "header[]=HTTP/1.0 410 Away with it",
        "header[]=Status: 404 Not Found",
        "header[]=status:503 x",
        "header[]=Location: /x",
        "header[]=Location: /x&status=201",
        "header[]=Location: http://a/b&status=303",
        "header[]=HTTP/1.1 301 M&header[]=Location: /y",
        "header[]=WWW-Authenticate: Basic realm=x",
        "add[]=X-A: 1&add[]=X-A: 2&add[]=x-a: 3",
        "header[]=X-A: 1&header[]=x-a: 2",
        "header[]=X-Empty:",
        "header[]=X-Space:   a b  ",
        "header[]=X-A: 1\r\nX-B: 2",
        "header[]=X-High: \u{e4}\u{ff}",
        "remove[]=X-Powered-By",
        "remove[]=content-type",
        "header[]=Date: Mon, 01 Jan 2001 00:00:00 GMT",
        "header[]=Connection: X-A&header[]=X-A: 1",
        "header[]=Cache-Control: no-store&add[]=Cache-Control: private",
        "header[]=ETag: \"x\"",
        "header[]=Last-Modified: Mon, 01 Jan 2001 00:00:00 GMT&status=204",
        "header[]=Expires: 0",
        "header[]=Vary: Cookie&add[]=Vary: X",
        "header[]=Content-Encoding: none",
        "header[]=Accept-Ranges: bytes",
        "header[]=Content-Range: bytes 0-1/4&status=206",
        "body=",
        "body=&status=404",
        "body=&status=204",
    ] {
        requests.push(get(&format!("/respond?{query}")));
    }
    for status in [
        0, 200, 201, 202, 203, 206, 226, 299, 300, 302, 305, 307, 308, 399, 400, 401, 418, 422,
        429, 499, 500, 503, 599, 600, 999,
    ] {
        requests.push(get(&format!("/respond?status={status}")));
        requests.push(get(&format!("/header-with-status?status={status}")));
    }
    for method in ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "FOO"] {
        let line = format!("{method} /respond?header[]=X-A: 1");
        requests.push(request(&line, &[], b""));
    }
    for query in [
        "status=404",
        "header[]=Content-Length: 4",
        "header[]=Content-Length: 10",
    ] {
        requests.push(request(&format!("HEAD /respond?{query}"), &[], b""));
    }
    for field in ["If-None-Match: \"x\"", "Range: bytes=0-1"] {
        let line = "GET /respond?header[]=ETag: \"x\"";
        requests.push(request(line, &[field], b""));
    }
    for length in ["5", "3", "0", "abc", "-1", "+5", "5, 5", ""] {
        requests.push(get(&format!("/length?length={length}")));
    }
    requests.push(request("GET /cookies", &["Cookie: a=b; c=d"], b""));
    requests.push(get("/remove-all"));
    requests.push(get("/no-such-script"));
    compare(doors, &requests, |_, _| true);
}

fn a_buffer_of_php_ini_is_there_for_ob_end_clean_before_a_download(doors: &Doors) {
    let paths = [
        "/download",
        "/download?before=4093",
        "/download-loop",
        "/levels",
        "/clean",
        "/get-clean",
        "/get-flush",
        "/end-flush",
        "/clean-after-much",
        "/nested",
        "/flush",
        "/large",
        "/php-output",
        "/implicit-flush",
        "/late-header?length=0",
        "/late-header?length=4095",
    ];
    let requests = paths.map(get).into_iter();
    let posted = paths.map(|path| post(path, "text/plain", "x")).into_iter();
    let requests: Vec<_> = requests.chain(posted).collect();
    // Without replaced functions, the buffer of the runtime counts as the buffer of php.ini, and is there again.
    let loops: [&[u8]; 4] = [
        b" /download-loop ",
        b" /get-clean ",
        b" /get-flush ",
        b" /end-flush ",
    ];
    compare(doors, &requests, |door, request| {
        let is_loop = loops
            .iter()
            .any(|path| request.windows(path.len()).any(|part| part == *path));
        door != Door::Fpm || !is_loop
    });
}

fn errors_and_exits_have_the_status_and_the_output_of_php(doors: &Doors) {
    let mut requests = Vec::new();
    for path in [
        "/exit",
        "/exit-number",
        "/handled",
        "/uncaught",
        "/uncaught-with-status",
        "/fatal",
        "/memory",
        "/error-handler",
        "/warnings?html=0",
        "/warnings?html=1",
    ] {
        requests.push(get(path));
        requests.push(request(&format!("HEAD {path}"), &[], b""));
    }
    for html in [0, 1] {
        let ini = format!("ini[display_errors]=1&ini[html_errors]={html}");
        requests.push(get(&format!("/fatal?{ini}")));
        requests.push(get(&format!("/memory?{ini}")));
    }
    // The message has the limit, which is another one for `php-cgi`.
    compare(doors, &requests, |door, request| {
        door != Door::PhpCgi || !request.starts_with(b"GET /memory?")
    });
    // The stack begins at the script that PHP runs, which includes this one in some modes.
    let shown = [0, 1].map(|html| {
        let ini = format!("ini[display_errors]=1&ini[html_errors]={html}");
        get(&format!("/uncaught?{ini}"))
    });
    compare(doors, &shown, |door, _| door == Door::FastCgi);
    for (door, name, address) in &doors.all {
        for request in &shown {
            let response = response(*address, request);
            let expected = response_of_nginx(doors, request);
            let lines = |text: &str| {
                let frames = text.lines().filter(|line| !line.starts_with('#'));
                frames.map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(response.status, expected.status, "{name}");
            assert_eq!(lines(&response.body), lines(&expected.body), "{name}");
            if !name.contains("fresh") && !name.contains("worker") {
                assert_eq!(response.body, expected.body, "{door:?} {name}");
            }
            assert!(!response.body.contains("apus.php"), "{}", response.body);
        }
    }
}

fn response_of_nginx(doors: &Doors, request: &[u8]) -> Comparable {
    response(doors.all[0].2, request)
}

fn names_within_quoted_strings_of_a_form_are_no_names(doors: &Doors) {
    let mut requests = Vec::new();
    for disposition in [
        r#"name="a""#,
        r#"name="a; filename=b""#,
        r#"name="a; name=b""#,
        r#"name="x"; filename="y; name=z""#,
        "name=a",
        "name=a; filename=b.txt",
        "name='a'; filename='b'",
        "name='a; filename=b'",
        r#"name="a\"b""#,
        r#"name="a%22b""#,
        r#"name="a\\b""#,
        r#"name=a\\b; filename=c\d"#,
        r#"name="a"; filename="C:\dir\f.txt""#,
        r#"name="a"; filename="../../x""#,
        r#"filename="f.txt""#,
        r#"filename="f.txt"; name="a""#,
        r#"name="a"; name="b""#,
        r#"name="a"; filename="""#,
        r#"name=""; filename="x""#,
        r#"name="a"; filename*=UTF-8''x"#,
        r#"NAME="a""#,
        r#"name = "a""#,
        r#"name="a" ; filename="b""#,
        r#"name="a";filename="b""#,
        r#"name="a;b""#,
        "name=\"é\"",
        r#"name="a[b][c]"; filename="x""#,
        r#"name="a[]"; filename="x""#,
        r#"name="a[b"; filename="x""#,
        r#"name="a]b"; filename="x""#,
        r#"name="a[b]c"; filename="x""#,
        r#"name="a.b c"; filename="x""#,
        r#"name="a b""#,
        r#"name="a.b""#,
        r#"name="a"#,
        r#"name="a"; filename="b"#,
        r#"name="a'b""#,
        "name=a b",
        "name=a b; filename=c d",
        r#"xname="a""#,
        r#"x="; name=\"evil\""; name="a""#,
        r#"filename="a\"; name=\"evil"; name="good""#,
        r#"name="a"; size=5; filename="q""#,
        r#"name="MAX_FILE_SIZE""#,
        "name=\"a\"; filename=\"b\"\r\nContent-Type: text/plain; charset=utf-8",
        "name=\"a\"; filename=\"b\"\r\nContent-Type:",
        "name=\"a\"\r\nContent-Disposition: form-data; name=\"b\"",
        "\r\n name=\"folded\"",
        "name=\"a\"\r\nno colon",
    ] {
        let parts = [
            (disposition, "3"),
            (r#"name="last"; filename="l""#, "12345"),
        ];
        requests.push(post("/files", FORM, form(&parts)));
    }
    for kind in [
        "multipart/form-data",
        "multipart/form-data; boundary=\"bb\"",
        "multipart/form-data; boundary=bb; charset=x",
        "multipart/form-data; boundary=bb,x",
        "Multipart/Form-Data; Boundary=bb",
        "multipart/form-data;boundary=bb",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"bb",
        "multipart/form-data; boundary =bb",
        "multipart/form-data; boundary=b",
    ] {
        requests.push(post("/files", kind, form(&[("name=a", "1")])));
    }
    for body in [
        "",
        "--bb--\r\n",
        "--bb\nContent-Disposition: form-data; name=\"a\"\n\n1\n--bb--\n",
        "--bb\r\nContent-Disposition : form-data; name=a\r\n\r\n1\r\n--bb--\r\n",
        "--bb\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n",
        "--bb\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--b",
        "--bb\r\nContent-Disposition: form-data; name=a\r\n\r\n1",
        "--bb\r\nContent-Disposition: form-data; name=a; filename=b\r\n\r\n1\r\n",
        "--bb\r\nContent-Disposition: form-data; name=a\r\n",
        "--bb \r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--bb--\r\n",
        "first\r\n--bb\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n--bbX\r\ny\r\n\
         --bb\r\ncontent-disposition:form-data;name=b\r\n\r\n\r\n--bb--\r\nlast\r\n\
         --bb\r\nContent-Disposition: form-data; name=c\r\n\r\nz\r\n--bb--\r\n",
    ] {
        requests.push(post("/files", FORM, body));
    }
    let big = "x".repeat(300_000);
    let files: Vec<_> = (0..25)
        .map(|number| format!("name=\"f{number}\"; filename=\"f{number}\""))
        .collect();
    let files: Vec<_> = files.iter().map(|head| (&**head, "x")).collect();
    for parts in [
        &files[..],
        &[
            ("name=\"a\"; filename=\"big\"", &big),
            ("name=\"b\"", &big[..70_000]),
        ],
        &[
            ("name=\"MAX_FILE_SIZE\"", "4"),
            ("name=\"a\"; filename=\"f\"", "12345"),
            ("name=\"b\"; filename=\"f\"", "1234"),
        ],
        &[
            ("name=\"a\"; filename=\"f\"", "x\r\n--b\r\ny\r\n-\r\n--"),
            ("name=\"a[x][]\"; filename=\"1\"", "1"),
            ("name=\"a[x][]\"; filename=\"2\"", ""),
        ],
    ] {
        requests.push(post("/files", FORM, form(parts)));
    }
    compare(doors, &requests, |_, _| true);
    // PHP-FPM knows no uploads of a resident worker, unless its functions are replaced.
    let moved = post("/move", FORM, form(&[("name=f; filename=x", "moved")]));
    compare(doors, &[moved], |door, _| door != Door::Fpm);
}

fn the_body_can_be_read_through_filters_and_is_never_included(doors: &Doors) {
    const WAYS: &str = "whole,again,part,behind,lines,copy,readfile,passthru,stream,end,write,\
        append,stat,filter,filters,filter-path,filter-nested,filter-file,filter-none,\
        filter-unknown,filter-write,filter-copy,append-filter,hash,zlib,inflate,spl,include,\
        include-filter,include-nested,include-layers,include-data,include-file,include-memory,\
        include-stdin,include-allowed,memory,temp,append-memory,xml,picture,ini,scan,unknown,\
        select,context";
    let big = "x".repeat(300_000);
    let mut requests = Vec::new();
    for body in [
        "hello = world\n<?php echo 'it ran'; return 'included';",
        &big,
        "",
    ] {
        for way in WAYS.split(',') {
            let path = format!("/input?of={way}");
            requests.push(post(&path, "text/plain", body));
        }
    }
    for (method, kind) in [
        ("PUT", "text/plain"),
        ("POST", "application/x-www-form-urlencoded"),
        ("POST", FORM),
        ("POST", "application/json"),
        ("GET", "text/plain"),
        ("DELETE", "a/b"),
    ] {
        let line = format!("{method} /input?of=whole,part,filter,filters");
        let kind = format!("Content-Type: {kind}");
        requests.push(request(&line, &[&kind], b"a=1&b=2"));
    }
    compare(doors, &requests, |_, _| true);
}

fn sessions_and_states_are_those_of_the_request(doors: &Doors) {
    let mut requests = Vec::new();
    for query in [
        "",
        "?limiter=public",
        "?limiter=private",
        "?limiter=private_no_expire",
        "?limiter=nocache",
        "?limiter=",
    ] {
        requests.push(get(&format!("/session{query}")));
    }
    for _ in 0..3 {
        requests.extend(["/change", "/show", "/respond"].map(get));
    }
    let form = "application/x-www-form-urlencoded";
    requests.push(get("/globals?a[]=1&a[x]=2&b.c=3&d=%ff"));
    requests.push(post("/globals?a=q&c=2", form, "a=p&e[]=4&e[]=5"));
    requests.push(post(
        "/globals",
        "application/x-www-form-urlencoded; charset=utf-8",
        "a=1",
    ));
    requests.push(post("/globals", "text/plain", "a=1"));
    requests.push(request(
        "PUT /globals",
        &[
            "Content-Type: application/x-www-form-urlencoded",
            "Cookie: a=c; d=3",
        ],
        b"a=1",
    ));
    compare(doors, &requests, |_, _| true);
    // PHP-FPM returns the fields of the first request, unless its functions are replaced; nginx sends empty ones.
    let fields = request(
        "POST /request-headers",
        &["Content-Type: text/x", "X-Under-Score: 1", "Accept: */*"],
        b"abc",
    );
    compare(doors, &[fields], |door, _| door != Door::Fpm);
}

/// The differences of docs/php.md: a request, what is looked at in the response, and what it is in nginx, over FastCGI, in
/// workers of `php-cgi`, and in workers of PHP-FPM.
const WRITTEN: [(&str, &str, [&str; 4]); 16] = [
    ("/respond?status=205", "body", ["body", "", "", ""]),
    ("/respond?status=99", "status", ["502", "500", "500", "500"]),
    (
        "/respond?header[]=no colon",
        "status",
        ["502", "200", "200", "200"],
    ),
    (
        "/respond?header[]=X-Sendfile: /x",
        "x-sendfile",
        ["/x", "", "", ""],
    ),
    (
        "/respond?header[]=Status: 404&status=410",
        "status",
        ["404", "404", "410", "410"],
    ),
    (
        "/respond?header[]=X-Tab:\ta",
        "x-tab",
        ["\ta", "a", "a", "a"],
    ),
    ("/respond?header[]=Upgrade: x", "upgrade", ["x", "", "", ""]),
    (
        "/respond?header[]=Content-Type: a/b&remove[]=Content-Type",
        "content-type",
        [
            "",
            "",
            "text/html; charset=UTF-8",
            "text/html; charset=UTF-8",
        ],
    ),
    ("/late-header?length=4096", "x-late", ["", "", "1", "1"]),
    ("/status-of-buffers", "body", ["[0]", "[0]", "[1]", "[0]"]),
    (
        "/end-flush",
        "body",
        [
            "first,second,0",
            "first,second,0",
            "first,second,0",
            "first,second,1",
        ],
    ),
    (
        "/get-flush",
        "body",
        [
            "first,second,\"first,\"0",
            "first,second,\"first,\"0",
            "first,second,\"first,\"0",
            "first,second,\"first,\"1",
        ],
    ),
    (
        "/get-clean",
        "body",
        ["'A PAGE'0", "'A PAGE'0", "'A PAGE'0", "'A PAGE'1"],
    ),
    ("/download-loop", "status", ["200", "200", "200", "500"]),
    ("/count-variables", "body", ["1001", "1001", "1000", "1000"]),
    (
        "/shutdown",
        "body",
        ["body, at the end", "body, at the end", "body", "body"],
    ),
];

fn the_written_differences_are_the_only_ones(doors: &Doors) {
    let variables: String = (0..1100).map(|number| format!("k{number}=v&")).collect();
    let requests: Vec<_> = WRITTEN
        .iter()
        .map(|(path, ..)| match *path {
            "/count-variables" => post(path, "application/x-www-form-urlencoded", &variables),
            path => get(path),
        })
        .collect();
    for (door, name, address) in &doors.all {
        for ((path, part, expected), request) in WRITTEN.iter().zip(&requests) {
            let response = response(*address, request);
            let found = match *part {
                "status" => response.status.to_string(),
                "body" => response.body.clone(),
                field => response
                    .fields
                    .get(field)
                    .map(|values| values.join(","))
                    .unwrap_or_default(),
            };
            let expected = match door {
                Door::Nginx => expected[0],
                Door::FastCgi => expected[1],
                Door::PhpCgi => expected[2],
                Door::Fpm => expected[3],
            };
            // A process for each request runs its shutdown functions at the end of it.
            let is_fresh = *path == "/shutdown" && name.contains("fresh");
            if found != expected && !is_fresh {
                let mut differences = doors.differences.borrow_mut();
                let _ = write!(differences, "\n{name} {path}: {response:.900?}");
            }
        }
    }
}

fn functions_of_frankenphp_send_early_hints_and_write_log_lines(doors: &Doors) {
    let hints = request("GET /early-hints", &["X-Asked: for"], b"");
    for (door, name, address) in &doors.all {
        if matches!(door, Door::Nginx | Door::FastCgi) {
            continue;
        }
        let mut wire = Wire::connect(*address);
        wire.send(&hints);
        let interim = wire.read_head();
        let link = Some("</style.css>; rel=preload; as=style");
        assert_eq!(
            (interim.status, interim.field("link")),
            (103, link),
            "{name}"
        );
        assert_eq!(interim.field("x-powered-by"), None, "{name}");
        assert_eq!(interim.field("x-later"), None, "{name}");
        let last = wire.read();
        assert_eq!((last.status, last.field("link")), (200, link), "{name}");
        assert_eq!(last.text(), "for 1", "{name}");
        let output = program("curl")
            .args(["--silent", "--include", "--http2-prior-knowledge"])
            .args(["--noproxy", "*", "--header", "X-Asked: for"])
            .args(["--header", &format!("Host: {HOST}")])
            .arg(format!("http://{address}/early-hints"))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let statuses = text.lines().filter_map(|line| line.strip_prefix("HTTP/2 "));
        let statuses: Vec<_> = statuses.map(str::trim).collect();
        assert_eq!(statuses, ["103", "200"], "{name}: {text}");
    }
    let (_, apus) = &doors.apus;
    apus.wait_for_log(r#"a line of the script {\"key\":\"value\"}"#);
}
