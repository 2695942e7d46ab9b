//! Panics of handlers become responses.

use apus::App;

use crate::harness::{Client, Server, head};

#[test]
fn without_the_layer_a_panic_is_a_500_too() {
    let app = App::new()
        .get("/call", || -> &'static str { panic!("in the call") })
        .get("/well", async || "well");
    let server = Server::start(app);
    let mut client = Client::connect(server.address());
    assert_eq!(client.request(&head("GET", "/call", &[])).status, 500);
    assert_eq!(client.request(&head("GET", "/well", &[])).text(), "well");
}
