//! Extractors that wait.

use std::rc::Rc;

use apus_handler::Error;
use apus_handler::extract::AsyncExtractor;
use apus_http::StatusCode;
use apus_testkit::{get, logged};

use crate::harness::Routes;

#[test]
fn a_database_that_is_down_is_told_where_a_handler_takes_an_optional_user() {
    #[derive(Clone)]
    struct Unreachable;

    impl AsyncExtractor for Unreachable {
        type Arguments = ();
        type Rejection = Error;

        async fn extract((): ()) -> Result<Self, Error> {
            let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            Err(Error::of(StatusCode::SERVICE_UNAVAILABLE).caused_by(refused))
        }
    }

    let app = Routes::new().get("/", async |user: Option<Unreachable>| {
        user.is_some().to_string()
    });
    let log = logged(|| {
        assert_eq!(get("/").to(&app).text(), "false");
    });
    assert!(
        log.contains("ERROR") && log.contains("connection refused"),
        "{log}"
    );
}

#[test]
fn values_of_one_thread_can_be_made_on_the_way() {
    #[derive(Clone)]
    struct Length(usize);

    impl AsyncExtractor for Length {
        type Arguments = ();
        type Rejection = Error;

        async fn extract((): ()) -> Result<Self, Error> {
            let text = Rc::new("abc".to_owned());
            tokio::task::yield_now().await;
            Ok(Self(text.len()))
        }
    }

    let app = Routes::new().get("/", async |Length(length): Length| length.to_string());
    assert_eq!(get("/").to(&app).text(), "3");
}
