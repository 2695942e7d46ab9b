//! The tests of libapus: programs in C that are compiled here, and clients that talk to them.

mod abi;
mod calls;
mod header;
mod http3;
mod install;
mod program;
mod server;
mod worker;
