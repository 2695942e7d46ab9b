//! Request and response bodies of sizes around every threshold, compared byte by byte: with resident PHP in each
//! mode, with PHP-FPM, and with an origin behind the proxy.

use std::io::Write as _;
use std::net::SocketAddr;

use apus_testkit::h2::request_with;

use super::stack::Stack;
use crate::h2_client::Peer;
use crate::harness::{Apus, Home, connect, free_port};
use crate::wire::Wire;

/// Sends the body back, or the file in it, and the `CONTENT_LENGTH` that PHP got.
const ECHO: &str = "$handler = function () {
    $file = $_FILES['file']['tmp_name'] ?? 'php://input';
    header('Content-Type: application/octet-stream');
    header('X-Length: ' . ($_SERVER['CONTENT_LENGTH'] ?? 'nothing'));
    readfile($file);
};";

/// Sizes at which the handling changes: reads and writes of connections, joined buffers and windows, records of
/// FastCGI, bodies in memory, bodies in the frame of a request, reads of files, frames of the runtime, and sums of
/// these.
const THRESHOLDS: [usize; 17] = [
    1,
    1 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    65_528,
    65_535,
    64 << 10,
    128 << 10,
    192 << 10,
    256 << 10,
    320 << 10,
    384 << 10,
    512 << 10,
    1 << 20,
    (1 << 20) + (256 << 10),
];

/// How a body is sent.
#[derive(Clone, Copy, Debug)]
enum Framing {
    Length,
    Chunked,
    Multipart,
    Http2,
    Http2WithLength,
}

const FRAMINGS: [Framing; 5] = [
    Framing::Length,
    Framing::Chunked,
    Framing::Multipart,
    Framing::Http2,
    Framing::Http2WithLength,
];

/// Bytes in which no aligned group of eight occurs twice.
fn pattern(len: usize) -> Vec<u8> {
    let words = (0_u64..).flat_map(|number| {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).to_le_bytes()
    });
    words.take(len).collect()
}

const BOUNDARY: &str = "------------------------7d9a2c41e8b6";

fn multipart(file: &[u8]) -> Vec<u8> {
    let mut body = format!(
        "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.bin\"\r\n\
         content-type: application/octet-stream\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(file);
    body.extend_from_slice(format!("\r\n--{BOUNDARY}--\r\n").as_bytes());
    body
}

/// Chunks of many sizes.
fn chunked(body: &[u8]) -> Vec<u8> {
    let sizes = [1, 7, 1000, 16_384, 40_000, 65_536, 3];
    let (mut out, mut rest) = (Vec::new(), body);
    for size in sizes.into_iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, more) = rest.split_at(size.min(rest.len()));
        let _ = write!(out, "{:x}\r\n", chunk.len());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
        rest = more;
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

/// The status, the `CONTENT_LENGTH` that PHP got, and the echoed body.
type Echo = (u16, Option<String>, Vec<u8>);

fn over_http1(wire: &mut Wire, framing: Framing, body: &[u8]) -> Echo {
    let (fields, framed) = match framing {
        Framing::Chunked => ("transfer-encoding: chunked".to_owned(), chunked(body)),
        _ => (format!("content-length: {}", body.len()), body.to_vec()),
    };
    let kind = match framing {
        Framing::Multipart => format!("multipart/form-data; boundary={BOUNDARY}"),
        _ => "application/octet-stream".to_owned(),
    };
    wire.send(format!(
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: {kind}\r\n{fields}\r\n\r\n"
    ));
    wire.send(framed);
    let reply = wire.read();
    let length = reply.field("x-length").map(str::to_owned);
    (reply.status, length, reply.body)
}

fn over_http2(peer: &mut Peer<std::net::TcpStream>, framing: Framing, body: &[u8]) -> Echo {
    let length = body.len().to_string();
    let mut fields = vec![("content-type", "application/octet-stream")];
    if matches!(framing, Framing::Http2WithLength) {
        fields.push(("content-length", &length));
    }
    let stream = peer.request(&request_with("POST", "/", &fields), false);
    peer.upload(stream, body, true);
    let response = peer.response(stream);
    let length = response.field("x-length").map(str::to_owned);
    (response.status, length, response.body)
}

/// Sends bodies of all sizes with all framings and compares the echoed bodies.
fn check_all_sizes(name: &str, address: SocketAddr) {
    let mut wire = Wire::connect(address);
    let mut peer = Peer::open(connect(address));
    let sizes = THRESHOLDS.iter().flat_map(|at| at - 1..=at + 1);
    for size in sizes {
        let file = pattern(size);
        for framing in FRAMINGS {
            let body = match framing {
                Framing::Multipart => multipart(&file),
                _ => file.clone(),
            };
            let (status, length, echo) = match framing {
                Framing::Http2 | Framing::Http2WithLength => over_http2(&mut peer, framing, &body),
                _ => over_http1(&mut wire, framing, &body),
            };
            let what = format!("{name}: {size} bytes, {framing:?}");
            assert_eq!(status, 200, "{what}");
            assert!(
                echo == file,
                "{what}: the echo has {} bytes and differs from byte {:?}",
                echo.len(),
                echo.iter().zip(&file).position(|(a, b)| a != b)
            );
            // PHP gets the length wherever it is known before PHP gets the request.
            let length = length.filter(|length| length != "nothing");
            let expected = Some(body.len().to_string());
            assert!(length == expected || body.is_empty(), "{what}: {length:?}");
        }
    }
}

/// A server with one site that has these lines.
fn serve(home: Home, port: u16, lines: &str) -> (Home, Apus) {
    home.write(
        "apus.toml",
        format!("[[sites]]\nname = \"app\"\nlisten = [\"127.0.0.1:{port}\"]\n{lines}\n"),
    );
    let apus = home.serve(&[]);
    (home, apus)
}

fn check_resident(mode: &str, script: &str) {
    let home = Home::new();
    std::fs::remove_file(home.path("site/index.html")).unwrap();
    home.write("site/index.php", script);
    let lines = format!(
        "root = \"site\"\nphp_fastcgi = \"/usr/bin/php-cgi8.2\"\n\
         [sites.fastcgi.workers]\nfolder = \"run\"\nmax = 2\nmode = \"{mode}\""
    );
    let (_home, apus) = serve(home, 0, &lines);
    check_all_sizes(mode, apus.address());
}

#[test]
fn bodies_of_64_to_256_kib_and_all_other_sizes_reach_resident_php_whole_in_classic_mode() {
    check_resident("classic", &format!("<?php {ECHO} $handler();"));
}

#[test]
fn bodies_of_64_to_256_kib_and_all_other_sizes_reach_resident_php_whole_in_worker_mode() {
    let script = format!("<?php {ECHO} while (frankenphp_handle_request($handler)) {{}}");
    check_resident("worker", &script);
}

#[test]
fn bodies_of_64_to_256_kib_and_all_other_sizes_reach_resident_php_whole_in_native_mode() {
    let script = "<?php
        use Apus\\{App, Request, Response};
        $app = new App();
        $app->post('/', function (Request $request) {
            $file = $request->file('file');
            return Response::text($file === null ? $request->body() : file_get_contents($file->path))
                ->header('X-Length', $request->header('Content-Length') ?? 'nothing');
        });
        $app->run();";
    check_resident("native", script);
}

/// A server on this port in front of PHP-FPM, and the folder of its configuration.
fn fastcgi(port: u16) -> (Home, Apus) {
    let stack = Stack::scripts();
    let script = stack.write("body_sizes/index.php", format!("<?php {ECHO} $handler();"));
    let lines = format!(
        "root = \"{}\"\nphp_fastcgi = \"{}\"",
        script.parent().unwrap().display(),
        stack.socket().display()
    );
    serve(Home::new(), port, &lines)
}

#[test]
fn bodies_of_all_sizes_reach_php_fpm_whole() {
    let (_home, apus) = fastcgi(0);
    check_all_sizes("FastCGI", apus.address());
}

#[test]
fn bodies_of_all_sizes_reach_an_origin_whole() {
    let port = free_port();
    let _origin = fastcgi(port);
    for proxy in [
        "",
        "proxy = { hold_request = { memory = 0 }, hold_response = { memory = 1 } }",
    ] {
        let lines = format!("upstream = \"http://127.0.0.1:{port}\"\n{proxy}");
        let (_home, apus) = serve(Home::new(), 0, &lines);
        check_all_sizes(proxy, apus.address());
    }
}
