//! What a shared cache may store and send (RFC 9111), as functions over fields and times.
//!
//! Nothing here reads a clock, keeps anything, or talks to an origin. In the order of a request:
//!
//! 1. [`KeyRules::key`] says where to look.
//! 2. Nothing there: [`must_not_forward`] tells whether the client wants 504 then. Else the request
//!    goes to the origin, and [`may_store`] makes a [`Stored`] of the answer, or says why not.
//! 3. Something there: [`reuse`] says whether it may be sent, with 304 if
//!    [`Stored::is_not_modified`], or has to be validated: [`add_conditions`] makes the request,
//!    [`validated`] says what the answer to it means, and [`freshen`] updates what is stored.
//! 4. Other methods go to the origin, and [`invalidated`] names what their answers outdate.
//!
//! All that can be worked out of a response is worked out once, in [`may_store`]; a hit is a few
//! comparisons of numbers.

mod credentials;
mod deception;
mod encode;
mod fields;
mod freshness;
mod invalidation;
mod key;
mod names;
mod part;
mod refusal;
mod request;
mod reuse;
mod rules;
mod stored;
mod storing;
mod time;
mod validation;
mod variance;

pub use encode::DecodeError;
pub use invalidation::invalidated;
pub use key::{Host, Key, KeyRules, Query};
pub use names::NamePattern;
pub use part::Part;
pub use refusal::Refusal;
pub use request::{Conditions, OriginResponse, PresentedRequest};
pub use reuse::{Reuse, may_serve_on_error, must_not_forward, reuse};
pub use rules::{
    ClientDirectives, Credentials, Heuristic, Ignored, Rules, SetCookie, Sharing, StatusTtl,
};
pub use stored::Stored;
pub use storing::{Storable, may_store};
pub use time::Timestamp;
pub use validation::{
    Freshened, HeadUpdate, Validated, add_conditions, freshen, selected, update_by_head, validated,
};
pub use variance::{Variance, Variant};
