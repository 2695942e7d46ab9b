//! The fuzz targets: functions that take bytes and panic when a property does not hold.

mod access;
mod c_interface;
mod cache;
mod client_hello;
mod clients;
mod conditions;
mod configuration;
mod connection;
mod fastcgi;
mod fields;
mod forms;
mod geo;
mod http1;
mod http1_client;
mod http2;
mod http2_connection;
mod http3;
mod maps;
mod networks;
mod paths;
mod php;
mod proxy;
mod quic;
mod quic_decoding;
mod quic_differential;
mod shared_cache;
mod tiers;
mod traces;
mod translation;
mod websocket;

use std::process::ExitCode;

pub use access::{bot_signature, htpasswd, jwks};
pub use c_interface::c_interface;
pub use cache::{cache_fields, cache_record};
pub use client_hello::client_hello;
pub use clients::forwarded;
pub use conditions::conditions;
pub use configuration::{configuration, hidden_secrets};
pub use fastcgi::{cgi_head, fastcgi_client};
pub use fields::{accept_encoding, range};
pub use forms::{cookies, multipart, query};
pub use geo::geo_database;
pub use http1::{chunked, request_head, response_head};
pub use http1_client::http1_client;
pub use http2::hpack;
pub use http2_connection::{http2_client, http2_connection, http2_frames};
pub use http3::{http3_connection, http3_frames, qpack};
pub use maps::map_file;
pub use networks::network_list;
pub use paths::path_resolution;
pub use php::php_wire;
pub use proxy::proxy_protocol;
pub use quic::quic_connection;
pub use quic_decoding::quic_decoding;
pub use quic_differential::quic_differential;
pub use shared_cache::shared_cache;
pub use tiers::tier_file;
pub use traces::trace_context;
pub use translation::{http1_to_http2, http2_to_http1};
pub use websocket::websocket_frames;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// Every target with the name of its seed folder.
pub const TARGETS: &[(&str, Target)] = &[
    ("accept_encoding", accept_encoding),
    ("bot_signature", bot_signature),
    ("c_interface", c_interface),
    ("cache_fields", cache_fields),
    ("cache_record", cache_record),
    ("cgi_head", cgi_head),
    ("chunked", chunked),
    ("client_hello", client_hello),
    ("conditions", conditions),
    ("configuration", configuration),
    ("cookies", cookies),
    ("fastcgi_client", fastcgi_client),
    ("forwarded", forwarded),
    ("http1_client", http1_client),
    ("http1_to_http2", http1_to_http2),
    ("http2_client", http2_client),
    ("http2_connection", http2_connection),
    ("http2_frames", http2_frames),
    ("http2_to_http1", http2_to_http1),
    ("http3_connection", http3_connection),
    ("http3_frames", http3_frames),
    ("geo_database", geo_database),
    ("hidden_secrets", hidden_secrets),
    ("hpack", hpack),
    ("htpasswd", htpasswd),
    ("jwks", jwks),
    ("map_file", map_file),
    ("multipart", multipart),
    ("network_list", network_list),
    ("path_resolution", path_resolution),
    ("php_wire", php_wire),
    ("proxy_protocol", proxy_protocol),
    ("qpack", qpack),
    ("query", query),
    ("quic_connection", quic_connection),
    ("quic_decoding", quic_decoding),
    ("quic_differential", quic_differential),
    ("range", range),
    ("request_head", request_head),
    ("response_head", response_head),
    ("shared_cache", shared_cache),
    ("tier_file", tier_file),
    ("trace_context", trace_context),
    ("websocket_frames", websocket_frames),
];

/// Makes a program of a target: the loop of libFuzzer, or a program that replays files.
#[macro_export]
macro_rules! run {
    ($target:ident) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|data: &[u8]| $crate::$target(data));

        #[cfg(not(fuzzing))]
        fn main() -> std::process::ExitCode {
            $crate::replay($crate::$target)
        }
    };
}

/// Runs a target on the files of the command line.
pub fn replay(target: Target) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for path in std::env::args_os().skip(1) {
        match std::fs::read(&path) {
            Ok(data) => target(&data),
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
