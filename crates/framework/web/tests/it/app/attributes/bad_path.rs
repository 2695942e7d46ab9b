//! Paths that no route can have.

use apus::get;

#[get("users")] //~ a path starts with a slash: "/users"
async fn no_slash() {}

#[get("/users/:id")] //~ a parameter is written `{id}` here
async fn other_words() {}

#[get("/users/{id")] //~ a parameter is not closed
async fn not_closed() {}

#[get("/files/{*rest}/raw")] //~ takes all that is left of a path and can only be its end
async fn not_at_the_end() {}

#[get(users)] //~ a route starts with its path
async fn no_text() {}

#[get("/users", methods = [GET])] //~ only `#[route]` takes methods
async fn too_much() {}

fn main() {}
