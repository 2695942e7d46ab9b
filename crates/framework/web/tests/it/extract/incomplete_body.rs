//! Bodies that end before they are complete, which is a fault of the client also for a handler that stores them.

use apus::storage::Storage;
use apus::{App, Body, BodyError, Frame, State};
use apus_testkit::{ask, logged, ready_frames};
use bytes::Bytes;

fn app(storage: Storage) -> App {
    App::new().state(storage).post(
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
    let log = logged(|| {
        for (error, status) in [
            (BodyError::TimedOut, 408),
            (BodyError::Disconnected, 400),
            (BodyError::Malformed, 400),
            (BodyError::TooLarge, 413),
        ] {
            let part = Bytes::from_static(b"--b\r\n");
            let body = ready_frames(None, vec![Ok(Frame::Data(part)), Err(error)]);
            let request = ask("POST", "/storage");
            let reply = request.body(body).to(&app);
            assert_eq!(reply.status, status);
        }
    });
    assert_eq!(log, "");
}
