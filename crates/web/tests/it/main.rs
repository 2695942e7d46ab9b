//! Tests of the framework and the services of the server; without sockets, but for `serve`, `sse`
//! and `websocket`.

#[cfg(test)]
mod accel;
#[cfg(test)]
mod app;
#[cfg(test)]
mod assets;
#[cfg(test)]
mod auth;
#[cfg(test)]
mod cached;
#[cfg(test)]
mod cached_forms;
#[cfg(test)]
mod cached_ranges;
#[cfg(test)]
mod error_pages;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod files;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod macros;
#[cfg(test)]
mod openapi;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod proxy_mirror;
#[cfg(test)]
mod rewrite;
#[cfg(test)]
mod routing;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod server;
#[cfg(test)]
mod session;
#[cfg(test)]
mod sites;
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
