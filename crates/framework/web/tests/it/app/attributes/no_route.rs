//! A function without an attribute among routes.

use apus::{App, routes};

async fn show() {}

fn main() {
    let _ = App::new().register(routes![show]); //~ expected type, found function `show`
}
