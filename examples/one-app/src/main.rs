//! Serves `./site` of this example, and the services in `ORIGIN` and `PHP`.

#![forbid(unsafe_code)]

use std::env;

use apus::StartError;
use apus_example_one_app::{Parts, app};

fn main() -> Result<(), StartError> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let origin = env::var("ORIGIN").unwrap_or_else(|_| "http://127.0.0.1:9000".into());
    let parts = Parts {
        site: concat!(env!("CARGO_MANIFEST_DIR"), "/site").into(),
        origin,
        php: env::var_os("PHP").map(Into::into),
    };
    println!("http://127.0.0.1:8080/");
    app(&parts)?.serve("127.0.0.1:8080")
}
