//! The real binary, started and asked as an operator would.

#[cfg(test)]
mod access_log;
#[cfg(test)]
mod application;
#[cfg(test)]
mod attacks;
#[cfg(test)]
mod cache;
#[cfg(test)]
mod check;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod control;
#[cfg(test)]
mod explain;
#[cfg(test)]
mod facts;
#[cfg(test)]
#[expect(dead_code, reason = "the engine's tests use the rest")]
#[path = "../../../net/tests/it/h2/client.rs"]
mod h2_client;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod new;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod php;
#[cfg(test)]
mod privileges;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod resident;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod under_load;
#[cfg(test)]
mod wire;
