//! Serves the upload example: `upload [FOLDER]`, by default `./uploads`.

#![forbid(unsafe_code)]

use apus::StartError;
use apus::extract::UploadLimits;
use apus_example_upload::Store;

fn main() -> Result<(), StartError> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let folder = std::env::args().nth(1).unwrap_or_else(|| "uploads".into());
    let store = Store::open(&folder)?;
    let limits = UploadLimits::new()
        .file(1 << 30)
        .total(2 << 30)
        .parts(20)
        .folder(&folder);
    println!("http://127.0.0.1:8080/ (files in {folder})");
    apus_example_upload::app(store, limits).serve("127.0.0.1:8080")
}
