//! Loads against servers of the test whose behaviour is known.

#[cfg(test)]
mod accuracy;
#[cfg(test)]
mod comparison;
#[cfg(test)]
mod comparison_files;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod find_max;
#[cfg(test)]
mod generators;
#[cfg(test)]
mod grpc;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod http2;
#[cfg(test)]
mod http3;
#[cfg(test)]
mod page;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod scenario;
#[cfg(test)]
mod status_page;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod websocket;
#[cfg(test)]
mod websocket_http2;
