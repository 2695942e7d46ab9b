//! The example, over real sockets: with an origin, and with PHP.

#[cfg(test)]
mod parts;
#[cfg(test)]
mod php;
