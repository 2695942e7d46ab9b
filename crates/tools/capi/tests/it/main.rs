//! The tests of libapus: programs in C that are compiled here, and clients that talk to them.

#[cfg(test)]
mod abi;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod header;
#[cfg(test)]
mod http3;
#[cfg(test)]
mod install;
#[cfg(test)]
mod late;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod program;
#[cfg(test)]
mod races;
#[cfg(test)]
mod server;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod worker;
