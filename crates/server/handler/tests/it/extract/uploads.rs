//! Forms with files (RFC 7578).

use std::io;
use std::path::{Path, PathBuf};

use apus_handler::extract::{Multipart, MultipartForm, UploadLimits};
use apus_handler::{BodyLimit, Rejection};
use apus_http::StatusCode;
use apus_testkit::{SocketClient, SocketReply, wait_until};
use serde::Deserialize;

use crate::harness::{Routes, Server};

/// A part with this disposition and data.
fn part(disposition: &str, data: &str) -> String {
    format!("--frontier\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{data}\r\n")
}

fn file(name: &str, file_name: &str, data: &str) -> String {
    format!(
        "--frontier\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{file_name}\"\r\n\
         Content-Type: text/plain\r\n\r\n{data}\r\n"
    )
}

const END: &str = "--frontier--\r\n";

fn form_request(body: &str, framing: &str) -> String {
    format!(
        "POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\
         Content-Type: multipart/form-data; boundary=frontier\r\n\r\n{body}"
    )
}

/// The response to a form that is sent with `Content-Length`.
fn post(app: Routes, body: &str) -> SocketReply {
    let server = Server::start(app);
    let framing = format!("Content-Length: {}", body.len());
    SocketClient::connect(server.address()).request(&form_request(body, &framing))
}

/// The response to a form that is sent in small chunks.
fn post_chunked(app: Routes, body: &str) -> SocketReply {
    let server = Server::start(app);
    let mut chunks = String::new();
    for piece in body.as_bytes().chunks(7) {
        let piece = std::str::from_utf8(piece).unwrap();
        chunks += &format!("{:x}\r\n{piece}\r\n", piece.len());
    }
    let body = format!("{chunks}0\r\n\r\n");
    SocketClient::connect(server.address())
        .request(&form_request(&body, "Transfer-Encoding: chunked"))
}

#[derive(Deserialize)]
struct Picture {
    title: String,
    #[serde(default)]
    year: Option<u16>,
    #[serde(default)]
    tags: Vec<String>,
}

async fn picture(form: MultipartForm<Picture>) -> Result<String, StatusCode> {
    let Picture { title, year, tags } = form.fields;
    let mut text = format!("{title} {year:?} {tags:?}");
    for file in &form.files {
        let bytes = file.bytes().await.map_err(|_| StatusCode::IM_A_TEAPOT)?;
        assert_eq!(bytes.len() as u64, file.len());
        text += &format!(
            "; {} {:?} {:?} {} {}",
            file.name(),
            file.file_name(),
            file.content_type(),
            file.is_in_memory(),
            String::from_utf8_lossy(&bytes)
        );
    }
    Ok(text)
}

#[test]
fn a_form_has_typed_fields_and_files() {
    let body = [
        &part("name=\"title\"", "A swift")[..],
        &part("name=tags", "bird"),
        &file("picture", "C:\\swift.jpg", "\u{1f426}\r\n--front"),
        &part("name=year", "2026"),
        &file("none", "", ""),
        &part("name=tags", "blue, sky"),
        END,
    ];
    let body = body.concat();
    let expected = "A swift Some(2026) [\"bird\", \"blue, sky\"]; \
                    picture \"swift.jpg\" Some(\"text/plain\") true \u{1f426}\r\n--front";
    let app = || Routes::new().post("/", picture);
    let reply = post(app(), &body);
    assert_eq!((reply.status, reply.text()), (200, expected));
}

#[test]
fn a_form_can_arrive_in_pieces_of_any_size() {
    let long = "0123456789".repeat(30_000);
    let body = format!(
        "{}{}{END}",
        part("name=title", "t"),
        file("f", "f.txt", &long)
    );
    for send in [post, post_chunked] {
        let app = Routes::new().post("/", picture);
        let reply = send(app, &body);
        let expected = format!("t None []; f \"f.txt\" Some(\"text/plain\") false {long}");
        assert_eq!((reply.status, reply.text()), (200, &*expected));
    }
}

#[test]
fn an_invalid_form_is_rejected_with_a_reason() {
    let app = || Routes::new().post("/", picture);
    for (body, status, reason) in [
        (format!("{}{END}", part("name=year", "2026")), 422, "title"),
        (
            format!("{}{}{END}", part("name=title", "t"), part("name=year", "x")),
            422,
            "\"x\"",
        ),
        (
            format!("{}{END}", part("name=title", "\u{e9}")),
            200,
            "\u{e9}",
        ),
        (part("name=title", "t"), 400, "last boundary"),
        (String::new(), 400, "last boundary"),
        (format!("--frontier\r\nX: y\r\n\r\n{END}"), 400, "no name"),
        (
            format!("--frontier\r\nno colon\r\n\r\n{END}"),
            400,
            "not valid",
        ),
        (format!("--frontier?{END}"), 400, "boundary"),
        (
            format!("--frontier\r\nX: {}", "y".repeat(9000)),
            400,
            "too long",
        ),
    ] {
        let reply = post(app(), &body);
        assert_eq!(reply.status, status, "{body}: {}", reply.text());
        assert!(reply.text().contains(reason), "{}", reply.text());
    }
}

#[test]
fn only_multipart_with_a_valid_boundary_is_accepted() {
    let server = Server::start(Routes::new().post("/", picture));
    for (content_type, status, reason) in [
        ("multipart/form-data; boundary=b", 400, "last boundary"),
        (
            "Multipart/Form-Data; charset=utf-8; BOUNDARY=\"b c\"",
            400,
            "last boundary",
        ),
        ("multipart/form-data", 400, "no valid boundary"),
        ("multipart/form-data; boundary=", 400, "no valid boundary"),
        (
            "multipart/form-data; boundary=b\u{e9}",
            400,
            "no valid boundary",
        ),
        ("multipart/mixed; boundary=b", 415, "multipart/form-data"),
        (
            "application/x-www-form-urlencoded",
            415,
            "multipart/form-data",
        ),
        ("", 415, "multipart/form-data"),
    ] {
        let reply = SocketClient::connect(server.address()).request(&format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\nContent-Length: 0\r\n\r\n"
        ));
        assert_eq!(reply.status, status, "{content_type}");
        assert!(reply.text().contains(reason), "{}", reply.text());
    }
}

#[test]
fn each_limit_is_a_413_that_names_the_limit() {
    let app = |limits: UploadLimits| {
        Routes::new()
            .body_limit(50)
            .layer(limits)
            .post("/", picture)
    };
    let fields = part("name=title", "t");
    let several = [
        &fields[..],
        &part("name=tags", "x"),
        &part("name=tags", "y"),
        END,
    ]
    .concat();
    let with_file = [&fields[..], &file("f", "f", &"x".repeat(300)), END].concat();
    let with_text = [&fields[..], &part("name=tags", &"x".repeat(60)), END].concat();
    let limits = UploadLimits::new();
    for (limits, body, reason) in [
        (
            limits.clone().total(200),
            &with_file,
            "longer than 200 bytes",
        ),
        (
            limits.clone().file(299),
            &with_file,
            "a file must not be longer than 299",
        ),
        (limits.clone().parts(2), &several, "more than 2 parts"),
        (
            limits.clone(),
            &with_text,
            "fields of the form are too long",
        ),
    ] {
        for send in [post, post_chunked] {
            let reply = send(app(limits.clone()), body);
            assert_eq!(reply.status, 413, "{reason}");
            assert!(reply.text().contains(reason), "{}", reply.text());
        }
    }
    let roomy = limits.file(300).parts(3);
    assert_eq!(post(app(roomy.clone()), &with_file).status, 200);
    assert_eq!(post(app(roomy), &several).status, 200);
}

#[test]
fn uploads_can_be_longer_than_other_bodies() {
    let app = || {
        let limited = Routes::new()
            .layer(BodyLimit::new(100))
            .post("/other", picture);
        limited.post("/", picture)
    };
    let body = [
        &part("name=title", "t")[..],
        &file("f", "f", &"x".repeat(500)),
        END,
    ]
    .concat();
    assert_eq!(post(app(), &body).status, 413);
    let wider = Routes::new()
        .layer(BodyLimit::new(100))
        .layer(UploadLimits::new())
        .post("/", picture);
    assert_eq!(post(wider, &body).status, 200);
    // The body limit still applies to what is kept in memory.
    let wider = Routes::new()
        .layer(BodyLimit::new(100))
        .layer(UploadLimits::new())
        .post("/", picture);
    let body = [&part("name=title", &"t".repeat(101))[..], END].concat();
    assert_eq!(post(wider, &body).status, 413);
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn long_files_are_temporary_files() {
    let (temporary, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let target = kept.path().join("new.txt");
    async fn save(mut form: Multipart, path: PathBuf) -> Result<String, Rejection> {
        let failed = |error: io::Error| Rejection::new(StatusCode::CONFLICT, error.kind());
        let mut text = String::new();
        while let Some(part) = form.next().await? {
            let upload = part.store().await?;
            text += if upload.is_in_memory() {
                "memory "
            } else {
                "file "
            };
            upload.save(&path).await.map_err(failed)?;
        }
        Ok(text)
    }
    let save_to = target.clone();
    let save = move |form: Multipart| save(form, save_to.clone());
    let limits = UploadLimits::new().in_memory(1000).folder(temporary.path());
    let app = || Routes::new().layer(limits.clone()).post("/", save.clone());
    for (length, kind) in [(1000, "memory "), (1001, "file "), (700_000, "file ")] {
        let long: String = ('a'..='z').cycle().take(length).collect();
        let body = format!("{}{END}", file("f", "../f.txt", &long));
        for send in [post, post_chunked] {
            let reply = send(app(), &body);
            assert_eq!((reply.status, reply.text()), (200, kind), "{length}");
            assert!(std::fs::read_to_string(&target).unwrap() == long);
            // An existing file is not replaced.
            assert_eq!(send(app(), &body).status, 409);
            std::fs::remove_file(&target).unwrap();
        }
        assert_eq!(entries(temporary.path()), 0);
    }
}

#[test]
fn an_unwritable_folder_is_a_500() {
    let limits = UploadLimits::new().in_memory(10).folder("/no/such/folder");
    let app = Routes::new().layer(limits).post("/", picture);
    let body = [
        &part("name=title", "t")[..],
        &file("f", "f", &"x".repeat(500)),
        END,
    ]
    .concat();
    assert_eq!(post(app, &body).status, 500);
}

#[test]
fn parts_can_be_streamed_and_skipped() {
    async fn sizes(form: Multipart) -> Result<String, Rejection> {
        let mut form = form.limits(UploadLimits::new().total(1_000_000));
        let mut text = String::new();
        while let Some(mut part) = form.next().await? {
            text += part.name();
            if part.name() == "skipped" {
                part.chunk().await?;
                continue;
            }
            let mut length = 0;
            while let Some(piece) = part.chunk().await? {
                length += piece.len();
            }
            assert_eq!(part.chunk().await?, None);
            text += &format!("={length} ");
        }
        assert!(form.next().await?.is_none());
        Ok(text)
    }
    let body = [
        &file("a", "a", &"x".repeat(200_000))[..],
        &part("name=skipped", &"x".repeat(100_000)),
        &part("name=c", ""),
        END,
        "epilogue",
    ]
    .concat();
    let app = Routes::new().post("/", sizes);
    assert_eq!(post(app, &body).text(), "a=200000 skippedc=0 ");
}

#[test]
fn files_of_an_aborted_upload_are_removed() {
    let temporary = tempfile::tempdir().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let limits = UploadLimits::new().in_memory(10).folder(temporary.path());
    let app = Routes::new()
        .layer(limits)
        .post("/", move |form: MultipartForm<Picture>| {
            sender.send(form.files.len()).unwrap();
            std::future::ready("never")
        });
    let server = Server::start(app);
    let mut client = SocketClient::connect(server.address());
    let body = [
        &part("name=title", "t")[..],
        &file("f", "f", &"x".repeat(5000)),
    ]
    .concat();
    client.send(form_request(&body, "Content-Length: 100000"));
    drop(client);
    drop(server);
    wait_until("the end of the handler", || {
        receiver.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected)
    });
    assert_eq!(entries(temporary.path()), 0);
}
