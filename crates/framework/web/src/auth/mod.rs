//! Authentication (RFC 9110 section 11), passwords, and the defence against forged requests.
//!
//! | what | how |
//! | --- | --- |
//! | [`BasicAuth`] | a layer: name and password with every request (RFC 7617) |
//! | [`BearerAuth`] | a layer: a token, which your function looks up (RFC 6750) |
//! | `JwtAuth` (feature `jwt`) | a layer: a signed token with claims about its owner (RFC 7519) |
//! | [`Csrf`] | a layer: forms and scripts of other sites cannot act for a visitor |
//! | [`SignedUrls`] | a layer: links that only the application can make, and that may expire |
//! | `password` (feature `password`) | passwords to store, and to compare with |
//!
//! A visitor who logs in by a form gets a [session](crate::session).

mod csrf;

pub use apus_layers::auth::*;
pub use csrf::{Csrf, CsrfToken};
