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

mod basic;
mod bearer;
mod csrf;
#[cfg(feature = "jwt")]
mod jwt;
#[cfg(feature = "password")]
pub mod password;

pub use basic::{BasicAuth, BasicUser, CheckResult, Credentials};
pub use bearer::BearerAuth;
pub use csrf::{Csrf, CsrfToken};
#[cfg(feature = "jwt")]
pub use jwt::{Claims, JwtAuth};

#[cfg(feature = "jwt")]
pub use jsonwebtoken;

use apus_http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use aws_lc_rs::{constant_time, digest};

use apus_handler::respond::IntoResponse;
use apus_handler::{Error, Rendering};

/// The credentials of a request in this scheme, whose name has no case (RFC 9110 section 11.4).
fn credentials<'r>(request: &'r Request, scheme: &str) -> Option<&'r str> {
    let field = request.headers().get_str("authorization")?;
    let (found, credentials) = field.split_once(' ')?;
    let credentials = credentials.trim_matches(' ');
    (found.eq_ignore_ascii_case(scheme) && !credentials.is_empty()).then_some(credentials)
}

/// 401 with what to log in by (RFC 9110 section 11.6.1).
fn unauthorized(rendering: &Rendering, challenge: HeaderValue) -> Response {
    const WWW_AUTHENTICATE: HeaderName = header::WWW_AUTHENTICATE;
    let error = Error::new(StatusCode::UNAUTHORIZED, "you have to log in")
        .header(WWW_AUTHENTICATE, challenge);
    rendering.apply(error.into_response())
}

/// Whether two texts are the same; how long it takes tells nothing about either.
fn same(one: &[u8], other: &[u8]) -> bool {
    let of = |text| digest::digest(&digest::SHA256, text);
    constant_time::verify_slices_are_equal(of(one).as_ref(), of(other).as_ref()).is_ok()
}
