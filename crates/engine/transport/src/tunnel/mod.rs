//! Tunnels (RFC 9110 sections 7.8 and 9.3.6): a connection, or a stream of one, as bytes in both directions.

mod http1;
mod stream;

pub use self::http1::{Http1Tunnel, TunnelCloser};
pub use self::stream::over_stream;
