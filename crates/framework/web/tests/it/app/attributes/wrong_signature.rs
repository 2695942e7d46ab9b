//! Functions that cannot be handlers.

use apus::{Json, Path, State, get, post, route, ws};

#[post("/users/{id}")]
async fn body_first(
    Json(name): Json<String>, //~ `Json` reads the body of the request, so it has to be the last
    Path(id): Path<u32>,
) -> String {
    format!("{id} {name}")
}

#[get("/a")]
async fn borrowed(
    name: &str, //~ a handler owns its arguments: `String`, not a reference
) -> String {
    name.to_owned()
}

#[get("/b")]
async fn generic<T>(value: State<T>) {} //~ a handler has no type parameters

#[get("/users")]
async fn no_parameter(Path(id): Path<u32>) {} //~ the path of this route has no parameter

#[get("/users/{user}/posts/{post}")]
async fn too_few(Path(id): Path<u32>) {} //~ the path has 2 parameters (`user`, `post`), and this takes 1

#[route("/c")] //~ name the methods: `methods = [GET, POST]`
async fn no_method() {}

#[route("/c", methods = [FETCH])] //~ a method is one of GET, POST
async fn no_such_method() {}

#[ws("/chat")]
async fn no_socket() {} //~ the first argument is the WebSocket: `socket: WebSocket`

#[ws("/chat/{name}")]
async fn other_first(name: Path<String>) {} //~ the first argument of what runs a WebSocket is the `WebSocket`

#[get("/d")]
struct NoFunction; //~ a route is a function

#[get("/e")]
#[post("/e")] //~ a function has one route
async fn twice() {}

fn main() {}
