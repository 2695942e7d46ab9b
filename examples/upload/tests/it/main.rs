//! The example, over real sockets.

#[cfg(test)]
mod files;
