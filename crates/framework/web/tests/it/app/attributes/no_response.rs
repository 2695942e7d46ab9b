//! A handler whose return type is not a response.

use apus::get;

struct User;

#[get("/user")]
async fn show() -> User { //~ `User` cannot be a response
    User
}

fn main() {}
