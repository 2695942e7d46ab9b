//! A handler that returns an error of which nobody knows how it is answered.

use apus::get;

struct Broken;

#[get("/broken")]
async fn broken() -> Result<&'static str, Broken> { //~ an error type of its own implements `HttpError`
    Err(Broken)
}

fn main() {}
