//! Bodies that end before they are complete, which is a fault of the client for every extractor.

use std::collections::HashMap;

use apus_handler::extract::Multipart;
use apus_handler::{Error, Form, Json, Rejection};
use apus_http::{Body, BodyError, Frame, ServiceFactory};
use apus_testkit::{ask, logged, ready_frames};
use bytes::Bytes;

use crate::harness::Routes;

fn app() -> Routes {
    Routes::new()
        .post("/text", async |_: String| ())
        .post("/bytes", async |_: Bytes| ())
        .post("/json", async |_: Json<Vec<u8>>| ())
        .post("/form", async |_: Form<HashMap<String, String>>| ())
        .post("/multipart", async |mut form: Multipart| {
            while form.next().await?.is_some() {}
            Ok::<_, Rejection>(())
        })
        .post("/frames", async |mut body: Body| {
            while let Some(frame) = body.frame().await {
                frame?;
            }
            Ok::<_, Error>(())
        })
}

#[test]
fn a_client_that_stalls_or_leaves_is_no_error_of_the_handler() {
    let app = app();
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
