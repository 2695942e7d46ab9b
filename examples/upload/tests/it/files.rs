//! Uploading, storing and downloading files.

use std::fs;
use std::path::Path;

use apus::extract::UploadLimits;
use apus::testing::{TestClient, TestRequest, TestResponse, TestServer};
use apus_example_upload::Store;
use serde_json::json;
use tempfile::TempDir;

struct Served {
    server: TestServer,
    folder: TempDir,
}

fn served() -> Served {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("files");
    let limits = UploadLimits::new()
        .file(300_000)
        .total(1_000_000)
        .in_memory(1000)
        .folder(outer.path());
    let app = apus_example_upload::app(Store::open(&folder).unwrap(), limits);
    Served {
        server: TestServer::with_workers(app, 2),
        folder: outer,
    }
}

impl Served {
    fn files(&self) -> Vec<String> {
        names(&self.folder.path().join("files"))
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn form(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut content = Vec::new();
    for (name, bytes) in files {
        let head = format!(
            "--limit\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        content.extend_from_slice(head.as_bytes());
        content.extend_from_slice(bytes);
        content.extend_from_slice(b"\r\n");
    }
    content.extend_from_slice(b"--limit--\r\n");
    content
}

fn request(client: &TestClient, files: &[(&str, &[u8])]) -> TestRequest {
    client
        .post("/files")
        .header("content-type", "multipart/form-data; boundary=limit")
        .body(form(files))
}

fn send(client: &TestClient, files: &[(&str, &[u8])]) -> TestResponse {
    request(client, files).send()
}

#[test]
fn a_file_is_kept_listed_and_given_back() {
    let served = served();
    let client = served.server.client();
    client
        .get("/")
        .send()
        .assert_ok()
        .assert_contains("Nothing is here");
    let content: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    send(&client, &[("Übersicht 1.bin", &content)])
        .assert_status(201)
        .assert_json(json!([{ "name": "Übersicht 1.bin", "bytes": 200_000 }]));
    client
        .get("/files")
        .send()
        .assert_ok()
        .assert_json(json!([{ "name": "Übersicht 1.bin", "bytes": 200_000 }]));
    client.get("/").send().assert_contains(
        "<a href=\"/files/Übersicht%201.bin\">Übersicht 1.bin</a><td>200000 bytes",
    );
    let mut download = client.get("/files/%C3%9Cbersicht%201.bin").send();
    download
        .assert_ok()
        .assert_header("content-disposition", "attachment")
        .assert_header("x-content-type-options", "nosniff")
        .assert_header("content-security-policy", "sandbox; default-src 'none'");
    assert_eq!(download.bytes(), content);
    client
        .get("/files/%C3%9Cbersicht%201.bin")
        .header("range", "bytes=1-2")
        .send()
        .assert_status(206)
        .assert_text("\u{1}\u{2}");
    assert_eq!(
        names(served.folder.path()),
        ["files"],
        "nothing temporary is left"
    );
}

#[test]
fn what_looks_like_a_page_or_a_program_is_only_ever_saved() {
    let served = served();
    let client = served.server.client();
    for name in ["index.html", "a.svg", "a.php"] {
        send(&client, &[(name, b"<script>alert(1)</script>")]).assert_status(201);
        client
            .get(&format!("/files/{name}"))
            .send()
            .assert_ok()
            .assert_header("content-disposition", "attachment");
    }
    client.get("/files/").send().assert_status(403);
}

#[test]
fn the_page_is_shown_again_to_people() {
    let served = served();
    let client = served.server.client();
    let mut reply = request(&client, &[("a.txt", b"a")])
        .header("accept", "text/html,application/xhtml+xml")
        .header("sec-fetch-site", "same-origin")
        .send();
    reply.assert_status(303).assert_redirect("/");
    client.get("/").send().assert_contains("a.txt");
}

#[test]
fn a_form_of_another_site_is_refused() {
    let served = served();
    let client = served.server.client();
    request(&client, &[("a.txt", b"a")])
        .header("sec-fetch-site", "cross-site")
        .send()
        .assert_status(403);
    assert!(served.files().is_empty());
}

#[test]
fn too_much_is_refused_and_nothing_of_it_stays() {
    let served = served();
    let client = served.server.client();
    let large = vec![b'x'; 300_001];
    send(&client, &[("good.txt", b"good"), ("large.bin", &large)]).assert_status(413);
    let full = vec![b'x'; 300_000];
    let four: Vec<(&str, &[u8])> = vec![("a", &full); 4];
    // Rejected by its length before the body is read, so on its own connection.
    send(&served.server.client(), &four).assert_status(413);
    assert!(served.files().is_empty());
    assert_eq!(names(served.folder.path()), ["files"]);
    send(&served.server.client(), &[("exact.bin", &full)]).assert_status(201);
}

#[test]
fn a_name_never_leads_out_of_the_folder() {
    let served = served();
    let client = served.server.client();
    send(&client, &[("../x", b"x")])
        .assert_status(201)
        .assert_json(json!([{ "name": "x", "bytes": 1 }]));
    for name in ["..", "../..", ".htaccess", "a<b>.txt", ""] {
        send(&client, &[(name, b"x")]).assert_status(422);
    }
    assert_eq!(served.files(), ["x"]);
    assert_eq!(names(served.folder.path()), ["files"]);
    for path in ["/files/..%2fx", "/files/%2e%2e/x", "/files/.new-1-0"] {
        let mut reply = client.get(path).send();
        assert!(reply.status().is_client_error(), "{path}: {}", reply.text());
    }
}

#[test]
fn a_form_without_files_is_told_so() {
    let served = served();
    let client = served.server.client();
    send(&client, &[]).assert_status(422);
    // A browser sends this if no file was chosen.
    send(&client, &[("", b"")]).assert_status(422);
    client
        .post("/files")
        .form([("file", "a")])
        .send()
        .assert_status(415);
}

#[test]
fn files_of_one_name_sent_at_once_are_all_kept() {
    let served = served();
    std::thread::scope(|scope| {
        for sender in 0..8u8 {
            let server = &served.server;
            scope.spawn(move || {
                let content = vec![sender; 50_000];
                let client = server.client();
                send(&client, &[("a.bin", &content), ("b.bin", &content)]).assert_status(201);
            });
        }
    });
    let folder = served.folder.path().join("files");
    assert_eq!(served.files().len(), 16);
    let mut senders: Vec<u8> = Vec::new();
    for name in served.files() {
        let content = fs::read(folder.join(&name)).unwrap();
        assert_eq!(content.len(), 50_000, "{name}");
        assert!(
            content.iter().all(|byte| *byte == content[0]),
            "{name} is mixed"
        );
        senders.push(content[0]);
    }
    senders.sort_unstable();
    let expected: Vec<u8> = (0..8).flat_map(|sender| [sender, sender]).collect();
    assert_eq!(senders, expected);
}

#[test]
fn an_upload_that_breaks_off_leaves_nothing() {
    let served = served();
    let client = served.server.client();
    let mut content = form(&[("a.bin", &[b'x'; 100_000])]);
    content.truncate(60_000);
    client
        .post("/files")
        .header("content-type", "multipart/form-data; boundary=limit")
        .body(content)
        .send()
        .assert_status(400);
    assert!(served.files().is_empty());
    assert_eq!(names(served.folder.path()), ["files"]);
}

#[test]
fn what_a_killed_process_left_is_removed_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(".new-1-1"), "half").unwrap();
    fs::write(folder.path().join("whole"), "whole").unwrap();
    Store::open(folder.path()).unwrap();
    assert_eq!(names(folder.path()), ["whole"]);
}
