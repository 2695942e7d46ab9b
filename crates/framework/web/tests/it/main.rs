//! Tests of the framework and of the services that an application mounts.

#[cfg(test)]
mod app;
#[cfg(test)]
mod auth;
#[cfg(test)]
mod building_blocks;
#[cfg(test)]
mod extract;
#[cfg(test)]
mod guide;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod jobs;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod server;
#[cfg(test)]
mod session;
#[cfg(test)]
mod sql;
#[cfg(test)]
mod sse;
#[cfg(test)]
mod time;
#[cfg(test)]
mod websocket;
