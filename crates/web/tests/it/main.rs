//! Tests of the framework and the services of the server; without sockets, but for `serve`, `sse`
//! and `websocket`.

#[cfg(test)]
mod app;
#[cfg(test)]
mod assets;
#[cfg(test)]
mod auth;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod macros;
#[cfg(test)]
mod openapi;
#[cfg(test)]
mod routing;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod server;
#[cfg(test)]
mod session;
#[cfg(test)]
mod sql;
#[cfg(test)]
mod sse;
#[cfg(test)]
mod template;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tower;
#[cfg(test)]
mod websocket;
