//! Types in extractors and responses without the derive that they need.

use apus::extract::{MultipartForm, PageLinks};
use apus::{App, Created, Extension, Form, Json, Path, Query, State, StatusCode, Valid, get, handler, post, ws};

struct B {
    page: u32,
}

type Alias = Query<B>;

#[get("/query")]
async fn query(Query(b): Query<B>) -> String { //~ `#[derive(serde::Deserialize)]` to your `B` type
    b.page.to_string()
}

#[get("/alias")]
async fn alias(Query(b): Alias) -> String { //~ `#[derive(serde::Deserialize)]` to your `B` type
    b.page.to_string()
}

#[get("/path/{page}")]
async fn path(Path(b): Path<B>) -> String { //~ `#[derive(serde::Deserialize)]` to your `B` type
    b.page.to_string()
}

#[post("/json")]
async fn json(Json(b): Json<Vec<B>>) -> String { //~ `#[derive(serde::Deserialize)]` to your `B` type
    b.len().to_string()
}

#[post("/form")]
async fn form(_: Query<u32>, Form(b): Form<B>) -> String { //~ `#[derive(serde::Deserialize)]` to your `B` type
    b.page.to_string()
}

#[post("/multipart")]
async fn multipart(form: MultipartForm<B>) -> String { //~ `#[derive(serde::Deserialize)]` to your `B` type
    form.fields.page.to_string()
}

#[get("/optional")]
async fn optional(b: Option<Query<B>>) -> String { //~ `#[derive(serde::Deserialize)]` to your `B` type
    b.is_some().to_string()
}

#[post("/result")]
async fn result(b: Result<Json<B>, apus::Rejection>) -> String { //~ `#[derive(serde::Deserialize)]` to your `B` type
    b.is_ok().to_string()
}

#[post("/valid")]
async fn valid(Valid(Json(b)): Valid<Json<B>>) -> String { //~ Validate
    b.page.to_string()
}

#[get("/state")]
async fn state(State(b): State<B>) -> String { //~ Clone
    b.page.to_string()
}

#[get("/extension")]
async fn extension(Extension(b): Extension<B>) -> String { //~ Clone
    b.page.to_string()
}

#[get("/response")]
async fn response() -> Json<B> { //~ `#[derive(serde::Serialize)]` to your `B` type
    Json(B { page: 1 })
}

#[get("/now")]
fn now() -> Json<Vec<B>> { //~ `#[derive(serde::Serialize)]` to your `B` type
    Json(Vec::new())
}

#[get("/fallible")]
async fn fallible() -> apus::Result<Option<Json<B>>> { //~ `#[derive(serde::Serialize)]` to your `B` type
    Ok(None)
}

#[post("/created")]
async fn created() -> Created<Json<B>> { //~ `#[derive(serde::Serialize)]` to your `B` type
    Created::at("/1", Json(B { page: 1 }))
}

#[get("/status")]
async fn status() -> (StatusCode, Json<B>) { //~ `#[derive(serde::Serialize)]` to your `B` type
    (StatusCode::OK, Json(B { page: 1 }))
}

#[get("/links")]
async fn links() -> apus::Result<(PageLinks, Json<Vec<B>>)> { //~ `#[derive(serde::Serialize)]` to your `B` type
    Err(apus::Error::not_found("none"))
}

#[handler]
async fn without_route(Query(b): Query<B>) -> String { //~ `#[derive(serde::Deserialize)]` to your `B` type
    b.page.to_string()
}

#[ws("/socket")]
async fn socket(_: apus::WebSocket, Query(b): Query<B>) { //~ `#[derive(serde::Deserialize)]` to your `B` type
    let _ = b.page;
}

async fn added(Query(b): Query<B>) -> Json<B> {
    Json(b)
}

async fn added_response() -> Json<B> {
    Json(B { page: 1 })
}

fn main() {
    let _ = App::new()
        .get("/added", added) //~ has `#[derive(serde::Deserialize)]`
        .get("/response", added_response); //~ has `#[derive(serde::Serialize)]`
}
