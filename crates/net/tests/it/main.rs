//! The engine over real sockets: what clients, honest and hostile, get from it.

#[cfg(test)]
mod content;
#[cfg(test)]
mod framing;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod persistence;
