//! The limit of request bodies in the application, its layers and its extractors.

use apus::App;
use apus::layers::BodyLimit;

/// All that limit a body tell it with the same words.
#[test]
fn a_body_that_is_too_long_has_one_text() {
    use apus::auth::Csrf;
    use apus::extract::{Multipart, UploadLimits};
    use apus::session::{Key, MemoryStore, Sessions};
    use apus::testing::TestServer;
    use apus::{Body, HandlerExt};

    async fn parts(mut form: Multipart) -> apus::Result<()> {
        while form.next().await.map_err(apus::Error::from)?.is_some() {}
        Ok(())
    }
    let csrf = Csrf::with_cookie(Key::new([1; 32]).unwrap());
    let app = App::new()
        .layer(Sessions::new(MemoryStore::new()))
        .body_limit(10)
        .post("/text", async |text: String| text)
        .post(
            "/layer",
            (async |text: String| text).with(BodyLimit::new(10)),
        )
        .post("/parts", parts.with(UploadLimits::new().total(10)))
        .post("/limited-parts", parts.with(BodyLimit::new(10)))
        .post("/csrf", (async || "").with(BodyLimit::new(10)).with(csrf));
    let server = TestServer::start(app);
    for path in ["/text", "/layer", "/parts", "/limited-parts", "/csrf"] {
        let content_type = if path.ends_with("parts") {
            "multipart/form-data; boundary=b"
        } else {
            "application/x-www-form-urlencoded"
        };
        let text = "a".repeat(11);
        let pieces = [&text[..5], &text[5..]];
        for body in [
            Body::from(text.clone()),
            Body::stream(apus_testkit::PieceStream::of(&pieces)),
        ] {
            let mut response = server
                .client()
                .post(path)
                .header("content-type", content_type)
                .header("sec-fetch-site", "same-origin")
                .body(body)
                .send();
            response
                .assert_status(413)
                .assert_text("the body must not be longer than 10 bytes\n");
        }
    }
}
