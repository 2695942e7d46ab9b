//! The settings of HTTP/3 without the feature `http3`: there are none.

use std::convert::Infallible;

/// The settings of HTTP/3 at one address.
#[derive(Clone)]
pub struct Http3Settings(Infallible);

/// A secret from which the keys of HTTP/3 are derived.
#[derive(Clone, Copy)]
pub struct Http3Secret(Infallible);
