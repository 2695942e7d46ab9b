//! Authentication (RFC 9110 section 11), passwords, and the defence against forged requests.
//!
//! | what | how |
//! | --- | --- |
//! | [`BasicAuth`] | a layer: name and password with every request (RFC 7617) |
//! | [`BearerAuth`] | a layer: a token, which a function of yours knows (RFC 6750) |
//! | `JwtAuth` (feature `jwt`) | a layer: a token that says itself whose it is (RFC 7519) |
//! | [`Csrf`] | a layer: forms and scripts of other sites cannot act for a visitor |
//! | `password` (feature `password`) | passwords to store, and to compare with |
//!
//! Who logs in by a form has a [session](crate::session) from then on.

mod csrf;

pub use apus_layers::auth::*;
pub use csrf::{Csrf, CsrfToken};
