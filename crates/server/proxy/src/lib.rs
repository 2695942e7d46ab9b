//! The reverse proxy: a service whose responses come from a group of origins.
//!
//! [`Proxy`] makes the request for the origin (`request_headers`), sends it to a node of the group (`client`), and
//! changes the headers of the response for the client (`response_headers`) while its body is streamed. If there
//! is no response, the client gets an error response (`error_response`). A second group may get copies of
//! requests (`mirror`).

#![forbid(unsafe_code)]

mod client;
mod error_response;
mod frame_queue;
mod hold;
pub mod log_rate_limiter;
mod mirror;
mod read_ahead;
pub mod request_headers;
mod request_label;
mod response_headers;
mod service;
mod settings;
mod single_origin;
mod spool;
mod substitute;
mod tee;
mod trailers;
mod tunnel;
mod websocket;

pub use self::client::UpstreamClient;
pub use self::hold::HoldSettings;
pub use self::mirror::MirrorSettings;
pub use self::request_headers::Forwarding;
pub use self::response_headers::{CookieRules, RedirectRule};
pub use self::service::Proxy;
pub use self::settings::{HostHeader, PathChange, PathForm, ProxySettings};
pub use self::single_origin::InvalidOrigin;
pub use self::substitute::{Substitution, Substitutions};
