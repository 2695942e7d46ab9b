//! Tests of groups of origins over real sockets.

#[cfg(test)]
mod balancing;
#[cfg(test)]
mod checks;
#[cfg(test)]
mod dns;
#[cfg(test)]
mod fastcgi;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod health;
#[cfg(test)]
mod http2;
#[cfg(test)]
mod pool;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod releases;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod retries;
