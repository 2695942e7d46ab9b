//! A handler that returns what is no response.

use apus::get;

struct User;

#[get("/user")]
async fn show() -> User { //~ `User` cannot be a response
    User
}

fn main() {}
