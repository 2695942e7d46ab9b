//! Tests of the `apus` binary over real sockets, by subject.

#[cfg(test)]
mod acme;
#[cfg(test)]
mod attacks;
#[cfg(test)]
mod cache;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod disk;
#[cfg(test)]
#[expect(dead_code, reason = "the engine's tests use the rest")]
#[path = "../../../../engine/net/tests/it/h2/client.rs"]
mod h2_client;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod php;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod server;
#[cfg(test)]
mod storage_server;
#[cfg(test)]
mod wire;
