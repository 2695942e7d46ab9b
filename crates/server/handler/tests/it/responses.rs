//! Errors and responses of handlers.

use apus_handler::{Error, IntoResponse, Json, OrNotFound};
use apus_testkit::{LocalClient, get};

use crate::harness::Routes;

#[test]
fn errors_have_the_names_of_their_statuses() {
    for (error, status) in [
        (Error::bad_request("a"), 400),
        (Error::unauthorized("a"), 401),
        (Error::forbidden("a"), 403),
        (Error::not_found("a"), 404),
        (Error::conflict("a"), 409),
        (Error::gone("a"), 410),
        (Error::unprocessable("a"), 422),
        (Error::too_many_requests("a"), 429),
        (Error::unavailable("a"), 503),
    ] {
        assert_eq!(error.status_code().as_u16(), status);
        assert_eq!(error.detail(), Some("a"));
    }
    assert_eq!(Some(1).or_404().unwrap(), 1);
    let error = None::<u8>.or_404().unwrap_err();
    assert_eq!((error.status_code().as_u16(), error.detail()), (404, None));
    let error = None::<u8>.or_not_found("no user").unwrap_err();
    assert_eq!(error.detail(), Some("no user"));
}

#[test]
fn any_response_can_have_fields() {
    let app = Routes::new()
        .get("/", async || {
            Json([1]).with("cache-control", "no-store").with("x-a", "b")
        })
        .get("/bad", async || "text".with("x-a", "b\r\nx-c: d"));
    let client = LocalClient::of(&app);
    let reply = client.send(get("/"));
    assert_eq!(reply.text(), "[1]");
    assert_eq!(reply.field("cache-control"), Some("no-store"));
    assert_eq!(reply.field("x-a"), Some("b"));
    let reply = client.send(get("/bad"));
    assert_eq!((reply.status, reply.field("x-c")), (500, None));
}
