//! Bodies of every size around every size at which something is done differently, both ways and with every
//! byte looked at: by resident PHP in each mode, by PHP-FPM, and by an origin behind the proxy.

use std::io::Write as _;
use std::net::SocketAddr;

use super::stack::Stack;
use crate::h2_client::{Peer, request_with};
use crate::harness::{Apus, Home, connect, free_port};
use crate::wire::Wire;

/// Sends the body back, or the file in it, and what it was told of its length.
const ECHO: &str = "$answer = function () {
    $file = $_FILES['file']['tmp_name'] ?? 'php://input';
    header('Content-Type: application/octet-stream');
    header('X-Told: ' . ($_SERVER['CONTENT_LENGTH'] ?? 'nothing'));
    readfile($file);
};";

/// Where something is done differently: reads and writes of the connections, joined pieces and windows,
/// records of FastCGI, what is held in memory, what travels in the frame of a request, pieces of files, frames
/// of the runtime, and sums of these.
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

/// Bytes of which no eight in a row stand at two places.
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

/// The status, what PHP was told of the length, and what came back.
type Echo = (u16, Option<String>, Vec<u8>);

fn over_http1(wire: &mut Wire, framing: Framing, body: &[u8]) -> Echo {
    let (fields, content) = match framing {
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
    wire.send(content);
    let reply = wire.read();
    let told = reply.field("x-told").map(str::to_owned);
    (reply.status, told, reply.body)
}

fn over_http2(peer: &mut Peer<std::net::TcpStream>, framing: Framing, body: &[u8]) -> Echo {
    let length = body.len().to_string();
    let mut fields = vec![("content-type", "application/octet-stream")];
    if matches!(framing, Framing::Http2WithLength) {
        fields.push(("content-length", &length));
    }
    let stream = peer.request(&request_with("POST", "/", &fields), false);
    peer.upload(stream, body, true);
    let answer = peer.response(stream);
    let told = answer.field("x-told").map(str::to_owned);
    (answer.status, told, answer.body)
}

/// Sends bodies of all sizes by all framings and looks at what comes back.
fn walk(name: &str, address: SocketAddr) {
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
            let (status, told, echo) = match framing {
                Framing::Http2 | Framing::Http2WithLength => over_http2(&mut peer, framing, &body),
                _ => over_http1(&mut wire, framing, &body),
            };
            let what = format!("{name}: {size} bytes, {framing:?}");
            assert_eq!(status, 200, "{what}");
            assert!(
                echo == file,
                "{what}: {} bytes came back, which differ from byte {:?}",
                echo.len(),
                echo.iter().zip(&file).position(|(a, b)| a != b)
            );
            // The length is told wherever it is known before PHP is asked.
            let told = told.filter(|told| told != "nothing");
            let expected = Some(body.len().to_string());
            assert!(told == expected || body.is_empty(), "{what}: {told:?}");
        }
    }
}

/// A server of one site, whose lines these are.
fn serve(home: Home, port: u16, lines: &str) -> (Home, Apus) {
    home.write(
        "apus.toml",
        format!("[[sites]]\nname = \"app\"\nlisten = [\"127.0.0.1:{port}\"]\n{lines}\n"),
    );
    let apus = home.serve(&[]);
    (home, apus)
}

fn walk_resident(mode: &str, script: &str) {
    let home = Home::new();
    std::fs::remove_file(home.path("site/index.html")).unwrap();
    home.write("site/index.php", script);
    let lines = format!(
        "root = \"site\"\nphp_fastcgi = \"/usr/bin/php-cgi8.2\"\n\
         [sites.fastcgi.workers]\nfolder = \"run\"\nmax = 2\nmode = \"{mode}\""
    );
    let (_home, apus) = serve(home, 0, &lines);
    walk(mode, apus.address());
}

#[test]
fn a_body_between_64_and_256_kib_reaches_resident_php_whole_and_so_do_all_others_classic() {
    walk_resident("classic", &format!("<?php {ECHO} $answer();"));
}

#[test]
fn a_body_between_64_and_256_kib_reaches_resident_php_whole_and_so_do_all_others_worker() {
    let script = format!("<?php {ECHO} while (frankenphp_handle_request($answer)) {{}}");
    walk_resident("worker", &script);
}

#[test]
fn a_body_between_64_and_256_kib_reaches_resident_php_whole_and_so_do_all_others_native() {
    let script = "<?php
        use Apus\\{App, Request, Response};
        $app = new App();
        $app->post('/', function (Request $request) {
            $file = $request->file('file');
            return Response::text($file === null ? $request->body() : file_get_contents($file->path))
                ->header('X-Told', $request->header('Content-Length') ?? 'nothing');
        });
        $app->run();";
    walk_resident("native", script);
}

/// PHP-FPM behind a server on this port, and the folder with its program.
fn fastcgi(port: u16) -> (Home, Apus) {
    let stack = Stack::scripts();
    let script = stack.write("body_sizes/index.php", format!("<?php {ECHO} $answer();"));
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
    walk("FastCGI", apus.address());
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
        walk(proxy, apus.address());
    }
}
