//! The attributes and macros of `apus`, which re-exports and documents them.

#![forbid(unsafe_code)]

mod attribute;
mod embed;
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

/// Compiles the files below a folder into the program: `embedded!("templates")` is a `[(&str, &[u8]); N]`
/// of paths relative to the folder, and bytes. The folder is relative to that of `Cargo.toml`. Hidden files
/// are left out.
#[proc_macro]
pub fn embedded(folder: TokenStream) -> TokenStream {
    embed::expand(folder.into()).into()
}
