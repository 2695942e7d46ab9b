//! Tests of the WebSocket codec (RFC 6455, RFC 7692) through its public interface.

#[cfg(test)]
mod cases;
#[cfg(test)]
mod client;
#[cfg(test)]
mod compression;
#[cfg(test)]
mod handshake;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod peer;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod table;
#[cfg(test)]
mod text;
