//! Examples of bodies: a static site, uploads to disk, and downloads that are made while they are sent.

use std::fs;
use std::io::{Read, Write};

use apus_testkit::{body_bytes, wait_until};

use crate::harness::{C, Server, curl};

#[test]
fn static_site_has_an_index_ranges_and_validators() {
    let fill = |folder: &std::path::Path, _| {
        fs::create_dir_all(folder.join("site/a")).unwrap();
        fs::write(folder.join("site/index.html"), "<h1>Swift</h1>\n").unwrap();
        fs::write(folder.join("site/a/b.txt"), "0123456789").unwrap();
        fs::write(folder.join("site/.secret"), "no").unwrap();
    };
    let server = Server::prepare("static.c", C, fill, &["site"]);
    let index = server.get("/");
    assert_eq!((index.status, index.text()), (200, "<h1>Swift</h1>\n"));
    assert_eq!(index.field("content-type"), "text/html; charset=utf-8");
    let range = curl(&["--range", "2-4", &server.url("/a/b.txt")]);
    assert_eq!((range.status, range.text()), (206, "234"));
    let validator = format!("If-None-Match: {}", index.field("etag"));
    assert_eq!(curl(&["-H", &validator, &server.url("/")]).status, 304);
    assert_eq!(server.get("/.secret").status, 404);
    assert_eq!(
        curl(&["--path-as-is", &server.url("/../output.log")]).status,
        400
    );
    server.stop();
}

#[test]
fn upload_is_written_to_disk_as_it_comes() {
    let server = Server::start("upload.c", C, &["."]);
    let sent = body_bytes(3_000_000);
    let source = tempfile::NamedTempFile::new().unwrap();
    fs::write(source.path(), &sent).unwrap();
    let path = source.path().to_str().unwrap();
    let reply = curl(&["--upload-file", path, &server.url("/files/swift.bin")]);
    assert_eq!((reply.status, reply.text()), (201, "3000000 bytes\n"));
    assert!(fs::read(server.folder.path().join("swift.bin")).unwrap() == sent);
    for name in ["..%2Fescaped", ".hidden"] {
        let url = server.url(&format!("/files/{name}"));
        let reply = curl(&["--upload-file", path, &url]);
        assert!(
            [400, 404].contains(&reply.status),
            "{name}: {}",
            reply.status
        );
    }
    assert!(!server.folder.path().join(".hidden").exists());
    server.stop();
}

#[test]
fn upload_that_breaks_off_leaves_no_file() {
    let server = Server::start("upload.c", C, &["."]);
    let parts = || {
        let entries = fs::read_dir(server.folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| name != "output.log")
            .collect::<Vec<_>>()
    };
    let mut client = server.connect();
    client
        .write_all(b"PUT /files/half.bin HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        .unwrap();
    client.write_all(&[b'x'; 50_000]).unwrap();
    wait_until("the upload to begin", || !parts().is_empty());
    drop(client);
    wait_until("its file to go away", || parts().is_empty());
    server.stop();
}

#[test]
fn download_is_streamed_without_being_held_in_memory() {
    let server = Server::start("download.c", C, &[]);
    let lines = server.get("/numbers/200000");
    let expected: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(lines.status, 200);
    assert!(lines.text() == expected);
    assert_eq!(lines.field("content-length"), "");

    // A client that does not read: the server waits, and makes no more than fits on the way.
    let mut client = server.connect();
    client
        .write_all(b"GET /numbers/4000000000 HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut first = [0; 1000];
    client.read_exact(&mut first).unwrap();
    assert_eq!(server.get("/numbers/3").text(), "1\n2\n3\n");
    drop(client);
    wait_until("the server to notice", || {
        server.log().contains("a client left")
    });
    server.stop();
}

#[test]
fn download_of_a_file_is_sent_by_its_descriptor() {
    let sent = body_bytes(700_000);
    let copy = sent.clone();
    let fill =
        move |folder: &std::path::Path, _| fs::write(folder.join("large.bin"), copy).unwrap();
    let server = Server::prepare("download.c", C, fill, &["large.bin"]);
    let reply = server.get("/file");
    assert_eq!(
        (reply.status, reply.field("content-length")),
        (200, "700000")
    );
    assert!(reply.body == sent);
    server.stop();
}
