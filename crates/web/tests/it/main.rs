//! Tests of the framework and the services of the server, without sockets.

#[cfg(test)]
mod app;
#[cfg(test)]
mod compress;
#[cfg(test)]
mod error_pages;
#[cfg(test)]
mod files;
#[cfg(test)]
mod rewrite;
#[cfg(test)]
mod sites;
#[cfg(test)]
mod support;
