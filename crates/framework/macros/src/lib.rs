//! The attributes and macros of `apus`, which re-exports and documents them.
//!
//! # Modules
//!
//! `attribute`, `route`, `handler`, `signature`: attributes of routes and handlers, and what they accept and reject.
//! `model`: `#[derive(Model)]`. `http_error`: `#[http_error]`. `embed`: files in the program, such as migrations.
//!
//! # Decisions
//!
//! - **A mistake is reported at the argument that is wrong**, not at the attribute: the generated code has the spans of
//!   the signature.
//!
//! # Tests
//!
//! Programs that must not compile are in `crates/framework/web/tests/it/app/attributes`, with what the compiler says.

#![forbid(unsafe_code)]

mod attribute;
mod embed;
mod handler;
mod http_error;
mod model;
mod path;
mod route;
mod signature;

use proc_macro::TokenStream;

use attribute::RouteKind;

macro_rules! by_method {
    ($($(#[$doc:meta])* $name:ident: $method:literal;)*) => {$(
        $(#[$doc])*
        #[proc_macro_attribute]
        pub fn $name(arguments: TokenStream, function: TokenStream) -> TokenStream {
            route::expand(RouteKind::Methods(&[$method]), arguments.into(), function.into()).into()
        }
    )*};
}

by_method! {
    /// A route for GET, and HEAD: `#[get("/users/{id}")]`, `#[get("/users/{id}", name = "user")]`.
    get: "GET";
    /// A route for POST: `#[post("/users")]`.
    post: "POST";
    /// A route for PUT: `#[put("/users/{id}")]`.
    put: "PUT";
    /// A route for PATCH: `#[patch("/users/{id}")]`.
    patch: "PATCH";
    /// A route for DELETE: `#[delete("/users/{id}")]`.
    delete: "DELETE";
}

/// A route for several methods: `#[route("/users", methods = [GET, POST])]`.
#[proc_macro_attribute]
pub fn route(arguments: TokenStream, function: TokenStream) -> TokenStream {
    route::expand(RouteKind::Named, arguments.into(), function.into()).into()
}

/// A WebSocket at a path: `#[ws("/chat")]`, on an `async fn` whose first argument is the `WebSocket`.
#[proc_macro_attribute]
pub fn ws(arguments: TokenStream, function: TokenStream) -> TokenStream {
    route::expand(RouteKind::WebSocket, arguments.into(), function.into()).into()
}

/// A handler without a route, which `App::get` and the other methods add: the compiler checks its arguments here.
///
/// `#[handler(blocking)]` makes an `async` handler of a function that is not: `apus::blocking` runs it on another thread, so
/// that the other requests of the worker do not wait for it. It can stand beside an attribute of a route.
#[proc_macro_attribute]
pub fn handler(arguments: TokenStream, function: TokenStream) -> TokenStream {
    handler::expand(arguments.into(), function.into()).into()
}

/// Declares the type of an `impl HttpError for`, so that `?` in a function that returns `apus::Result` keeps its
/// status: `#[http_error] impl HttpError for ShopError { .. }`.
#[proc_macro_attribute]
pub fn http_error(arguments: TokenStream, item: TokenStream) -> TokenStream {
    http_error::expand(arguments.into(), item.into()).into()
}

/// Makes a struct with named fields the row of a table: see the trait `apus::sql::Model`.
#[proc_macro_derive(Model, attributes(model))]
pub fn model(input: TokenStream) -> TokenStream {
    model::expand(input.into()).into()
}

/// Compiles the files below a folder into the program: `embedded!("templates")` is a `[(&str, &[u8]); N]`
/// of paths relative to the folder, and bytes. The folder is relative to the folder of `Cargo.toml`. Hidden
/// files are left out.
#[proc_macro]
pub fn embedded(folder: TokenStream) -> TokenStream {
    embed::expand(folder.into()).into()
}
