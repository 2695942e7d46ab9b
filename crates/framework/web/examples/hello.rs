//! An application in ten lines: `cargo run --example hello`, then `curl 127.0.0.1:8080/world`.
use apus::{App, Path};

async fn hello(Path(name): Path<String>) -> String {
    format!("Hello, {name}!\n")
}

fn main() -> Result<(), apus::StartError> {
    App::new().get("/{name}", hello).serve("127.0.0.1:8080")
}
