//! Transfers on virtual time over a simulated path, with the settings that an endpoint gives its connections.

mod end;
mod goodput;
mod path;
mod qlog;
mod transfer;
