//! QUIC over UDP sockets of the loopback interface.

#[cfg(test)]
mod address;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod interop;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod packets;
#[cfg(test)]
#[cfg(test)]
mod streams;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod versions;
#[cfg(test)]
mod workers;
