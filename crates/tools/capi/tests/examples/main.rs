//! Tests of the examples in C, C++ and Python: each is compiled as its user would do it, runs as a server, and responds over real
//! sockets.

#[cfg(test)]
mod bindings;
#[cfg(test)]
mod bodies;
#[cfg(test)]
mod build_files;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod live;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod own_threads;
#[cfg(test)]
mod routes;
#[cfg(test)]
mod sanitizers;
#[cfg(test)]
mod services;
