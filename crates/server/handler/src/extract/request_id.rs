//! The id of a request as an argument.

use std::convert::Infallible;

use apus_http::{Request, RequestId};

use super::FromRequestHead;
use crate::matched::Matched;

impl FromRequestHead for RequestId {
    type Rejection = Infallible;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Infallible> {
        Ok(request.id())
    }
}
