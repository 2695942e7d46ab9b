//! A handler that returns an error type that cannot become a response.

use apus::get;

struct Broken;

#[get("/broken")]
async fn broken() -> Result<&'static str, Broken> { //~ an error type of its own implements `HttpError`
    Err(Broken)
}

fn main() {}
