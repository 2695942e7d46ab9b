//! Handlers that cannot run on another thread, and attributes without a handler.

use std::rc::Rc;

use apus::{Json, Path, handler};

#[handler(blocking)]
async fn waits() {} //~ an `async` function cannot block as a whole

#[handler(later)] //~ write `#[handler]` or `#[handler(blocking)]`
fn other_word() {}

#[handler]
fn body_first(Json(name): Json<String>, Path(id): Path<u32>) -> String { //~ `Json` reads the body of the request, so it has to be the last
    format!("{id} {name}")
}

#[handler(blocking)]
fn returned() -> Rc<str> { //~ `Rc<str>` cannot be sent to another thread
    "".into()
}

#[handler]
struct NoFunction; //~ a handler is a function

fn main() {}
