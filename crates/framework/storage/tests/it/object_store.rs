//! An object store: signed URLs and errors.

use std::process::Command;
use std::time::Duration;

use apus_handler::{HandlerService, HttpError, OrNotFound, Query, Result, State};
use apus_layers::Readiness;
use apus_storage::{S3Settings, Storage};
use apus_testkit::{LocalClient, block_on, free_port, get};
use serde::Deserialize;

use crate::harness::{key, settings};

#[test]
fn a_signed_url_of_an_object_store_is_for_everyone_for_a_time() {
    let storage = Storage::s3(settings("files")).unwrap();
    let name = key("a b/ü.txt");
    block_on(storage.put(&name, "content")).unwrap();
    let url = storage.signed_url(&name, Duration::from_secs(60)).unwrap();
    let fetch = |url: &str| {
        let output = Command::new("curl")
            .args(["--silent", url])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(fetch(&url), "content");
    let week = Duration::from_secs(7 * 24 * 3600);
    assert!(storage.signed_url(&name, week).is_ok());
    assert!(
        storage
            .signed_url(&name, week + Duration::from_secs(1))
            .is_err()
    );
}

#[test]
fn a_bucket_that_is_missing_and_a_store_that_is_down_are_errors() {
    let none = Storage::s3(settings("none")).unwrap();
    let error = block_on(none.get(&key("a"))).unwrap_err();
    assert!(error.to_string().contains("NoSuchBucket"), "{error}");

    let url = format!("http://127.0.0.1:{}", free_port());
    let down = Storage::s3(S3Settings::new(url, "files")).unwrap();
    #[derive(Deserialize)]
    struct Name {
        name: String,
    }
    async fn length(
        State(files): State<Storage>,
        Query(Name { name }): Query<Name>,
    ) -> Result<String> {
        let name = name.parse().map_err(HttpError::into_error)?;
        let info = files.info(&name).await.map_err(HttpError::into_error)?;
        Ok(info.or_404()?.bytes.to_string())
    }
    let files = LocalClient::of(&HandlerService::new(length).state(down.clone()));
    assert_eq!(files.send(get("/?name=a")).status, 503);
    assert_eq!(files.send(get("/?name=.a")).status, 400);
    let ready = Readiness::new().check("files", async move || down.ping().await);
    let ready = LocalClient::of(&HandlerService::new(ready));
    assert_eq!(ready.send(get("/ready")).status, 503);

    for endpoint in [
        "files.example.com",
        "ftp://example.com",
        "http://",
        "http://a/b",
        "http://a:b",
    ] {
        assert!(
            Storage::s3(S3Settings::new(endpoint, "files")).is_err(),
            "{endpoint}"
        );
    }
    for bucket in ["", "a/b", "..", "a b"] {
        assert!(
            Storage::s3(S3Settings::new("http://a", bucket)).is_err(),
            "{bucket}"
        );
    }
}
