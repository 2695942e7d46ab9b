//! Handlers that are added by `App::get` and the other methods, without an attribute.

use apus::{App, Json, Next, Path, Request, Valid};

struct Database;

struct User;

async fn first(database: Database, Path(id): Path<u32>) -> String {
    let _ = database;
    id.to_string()
}

async fn last(Path(id): Path<u32>, database: Database) -> String {
    let _ = database;
    id.to_string()
}

async fn body_first(Json(name): Json<String>, Path(id): Path<u32>) -> String {
    format!("{id} {name}")
}

async fn no_response(Path(_): Path<u32>) -> User {
    User
}

fn no_response_now() -> User {
    User
}

async fn no_error() -> Result<String, User> {
    Err(User)
}

async fn borrowed(name: &str) -> String {
    name.to_owned()
}

async fn optional(database: Option<Database>) -> &'static str {
    database.map_or("none", |_| "one")
}

async fn result(database: Result<Database, apus::Rejection>) -> &'static str {
    database.map_or("none", |_| "one")
}

async fn without_rules(Valid(Json(database)): Valid<Json<Database>>) {
    let Database = database;
}

async fn nine(_: (), _: (), _: (), _: (), _: (), _: (), _: (), _: (), _: ()) {}

async fn layer(_: Request, _: Next) -> User {
    User
}

fn main() {
    let _ = App::new()
        .get("/first/{id}", first) //~ `Database` cannot be extracted from the head of a request
        .get("/last/{id}", last) //~ `Database` cannot be an argument of a handler
        .post("/body/{id}", body_first) //~ `Json<String>` cannot be extracted from the head of a request
        .get("/response/{id}", no_response) //~ `User` cannot be a response
        .get("/now", no_response_now) //~ `User` is neither a response nor a future of one
        .get("/error", no_error) //~ an error type of its own implements `HttpError`
        .get("/borrowed", borrowed) //~ `&str` cannot be an argument of a handler
        .get("/optional", optional) //~ `Option<Database>` cannot be an argument of a handler
        .get("/result", result) //~ `Result<Database, Rejection>` cannot be an argument of a handler
        .post("/rules", without_rules) //~ `Valid<apus::Json<Database>>` cannot be an argument of a handler
        .get("/nine", nine) //~ a handler is a function of up to eight extractors
        .get("/text", "no function") //~ this function is not a handler
        .get("/closure", async |Path(_): Path<u32>, _: Database| "") //~ `Database` cannot be an argument of a handler
        .layer(layer); //~ `User` cannot be a response
}
