//! Connections to origins: their behaviour with origins that are honest, slow, broken and hostile.

mod addresses;
mod bodies;
mod fastcgi;
mod framing;
mod harness;
mod interim;
mod persistence;
mod timeouts;
mod tls;
mod tunnels;
