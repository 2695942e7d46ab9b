//! Errors of requests as problem details (RFC 9457).

use apus::{Error, Path, Result, StatusCode};
use serde::Serialize;

/// The problem types of this API.
const KINDS: [(&str, &str); 3] = [
    (
        "invalid",
        "Values of the request are not possible. `errors` has a `pointer` (RFC 6901) and a `detail` for \
         each of them.",
    ),
    ("email-taken", "Another user has this email address."),
    (
        "out-of-stock",
        "There is less of a product than was ordered: `product` says of which, `left` how much there is. \
         Nothing of the order was placed.",
    ),
];

/// The page that explains a problem type.
pub(crate) async fn explain(Path(kind): Path<String>) -> Option<&'static str> {
    let known = KINDS.iter().find(|(name, _)| *name == kind);
    known.map(|(_, text)| *text)
}

/// Collects all invalid values of a request for one response.
#[derive(Default)]
pub(crate) struct Checks(Vec<Fault>);

/// An invalid value.
#[derive(Serialize)]
struct Fault {
    /// The JSON pointer of the value.
    pointer: String,
    detail: &'static str,
}

impl Checks {
    /// Adds `detail` for the value at `pointer` unless it is valid.
    pub(crate) fn need(
        mut self,
        is_good: bool,
        pointer: impl Into<String>,
        detail: &'static str,
    ) -> Self {
        if !is_good {
            self.0.push(Fault {
                pointer: pointer.into(),
                detail,
            });
        }
        self
    }

    /// 422 with all details, if there are any.
    pub(crate) fn finish(self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(self.into_error())
        }
    }

    /// The response.
    pub(crate) fn into_error(self) -> Error {
        Error::of(StatusCode::UNPROCESSABLE_ENTITY)
            .kind("/problems/invalid")
            .title("Values of the request are not possible")
            .with("errors", self.0)
    }
}
