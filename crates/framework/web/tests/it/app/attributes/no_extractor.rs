//! An argument that is not an extractor.

use apus::{Path, get};

struct Database;

#[get("/users/{id}")]
async fn first(
    database: Database, //~ `Database` cannot be extracted from the head of a request
    Path(id): Path<u32>,
) -> String {
    let _ = database;
    id.to_string()
}

#[get("/users/{id}/last")]
async fn last(
    Path(id): Path<u32>,
    database: Database, //~ `Database` cannot be an argument of a handler
) -> String {
    let _ = database;
    id.to_string()
}

fn main() {}
