//! The engine over real sockets: what clients, honest and hostile, get from it.

#[cfg(test)]
mod bodies;
#[cfg(test)]
mod descriptors;
#[cfg(test)]
mod durations;
#[cfg(test)]
mod embedded;
#[cfg(test)]
mod framing;
#[cfg(test)]
mod glitches;
#[cfg(test)]
mod h2;
#[cfg(test)]
mod h3;
#[cfg(test)]
mod half_closed;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod interim;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod listeners;
#[cfg(test)]
mod panics;
#[cfg(test)]
mod persistence;
#[cfg(test)]
mod proxy_protocol;
#[cfg(test)]
mod refused_clients;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod responses;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod tunnels;
#[cfg(test)]
mod workers;
