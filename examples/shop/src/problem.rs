//! What is wrong with a request, as problem details (RFC 9457).

use apus::{Error, Path, Result, StatusCode};
use serde::Serialize;

/// The kinds of problems that are this API's own, which `type` is the address of.
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

/// Explains a kind of problems to people.
pub(crate) async fn explain(Path(kind): Path<String>) -> Option<&'static str> {
    let known = KINDS.iter().find(|(name, _)| *name == kind);
    known.map(|(_, text)| *text)
}

/// Gathers all that is wrong with the values of a request, so that the client is told at once.
#[derive(Default)]
pub(crate) struct Checks(Vec<Fault>);

/// A value that is not possible.
#[derive(Serialize)]
struct Fault {
    /// Where it is in the content.
    pointer: String,
    detail: &'static str,
}

impl Checks {
    /// Notes `detail` of the value at `pointer` unless it is good.
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

    /// Ends it: 422 with all that was noted.
    pub(crate) fn finish(self) -> Result<()> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(self.into_error()),
        }
    }

    /// What the client is told.
    pub(crate) fn into_error(self) -> Error {
        Error::of(StatusCode::UNPROCESSABLE_ENTITY)
            .kind("/problems/invalid")
            .title("Values of the request are not possible")
            .with("errors", self.0)
    }
}
