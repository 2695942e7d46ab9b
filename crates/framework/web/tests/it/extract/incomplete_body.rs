//! Bodies that end before they are complete, which is a fault of the client for every extractor.

use std::collections::HashMap;

use apus::extract::Multipart;
use apus::storage::Storage;
use apus::{App, Body, BodyError, Form, Frame, Json, State};
use apus_testkit::{ask, ready_frames};
use bytes::Bytes;

use crate::layers::logged;

fn app(storage: Storage) -> App {
    App::new()
        .state(storage)
        .post("/text", async |_: String| ())
        .post("/bytes", async |_: Bytes| ())
        .post("/json", async |_: Json<Vec<u8>>| ())
        .post("/form", async |_: Form<HashMap<String, String>>| ())
        .post("/multipart", async |mut form: Multipart| {
            while form.next().await?.is_some() {}
            Ok::<_, apus::Rejection>(())
        })
        .post("/frames", async |mut body: Body| {
            while let Some(frame) = body.frame().await {
                frame?;
            }
            Ok::<_, apus::Error>(())
        })
        .post(
            "/storage",
            async |State(storage): State<Storage>, body: Body| {
                storage.put(&"a".parse()?, body).await?;
                Ok::<_, apus::Error>(())
            },
        )
}

#[test]
fn a_client_that_stalls_or_leaves_is_no_error_of_the_handler() {
    let folder = tempfile::tempdir().unwrap();
    let app = app(Storage::folder(folder.path().join("files")).unwrap());
    app.check().unwrap();
    let multipart = "multipart/form-data; boundary=b";
    let log = logged(|| {
        for (path, media_type) in [
            ("/text", ""),
            ("/bytes", ""),
            ("/json", "application/json"),
            ("/form", "application/x-www-form-urlencoded"),
            ("/multipart", multipart),
            ("/frames", ""),
            ("/storage", ""),
        ] {
            for (error, status) in [
                (BodyError::TimedOut, 408),
                (BodyError::Disconnected, 400),
                (BodyError::Malformed, 400),
                (BodyError::TooLarge, 413),
            ] {
                let part = Bytes::from_static(b"--b\r\n");
                let body = ready_frames(None, vec![Ok(Frame::Data(part)), Err(error)]);
                let request = ask("POST", path).with("content-type", media_type);
                let reply = request.body(body).to(&app);
                assert_eq!(reply.status, status, "{path}");
            }
        }
    });
    assert_eq!(log, "");
}
