//! Lists in pages with a link to the next page.
//!
//! A page begins after the last id of the page before, so that no entry is repeated or left out while
//! entries are added, and the last page is as fast as the first.

use apus::Result;
use apus::sql::sqlx;
use serde::{Deserialize, Serialize};

use crate::problem::Checks;

const DEFAULT_LIMIT: i64 = 20;
const MAX_LIMIT: i64 = 100;

/// The parameters of a page.
#[derive(Clone, Copy, Deserialize)]
pub(crate) struct PageQuery {
    #[serde(default)]
    after: i64,
    #[serde(default = "default_limit")]
    limit: i64,
}

fn default_limit() -> i64 {
    DEFAULT_LIMIT
}

/// A page in a response.
#[derive(Serialize)]
pub(crate) struct Page<T> {
    items: Vec<T>,
    /// The URL of the next page, if there is one.
    next: Option<String>,
}

impl PageQuery {
    /// The page of a list at `path`. `read` gets an id and a number, and returns this number of entries after
    /// the id, in order.
    pub(crate) async fn of<T>(
        self,
        path: &str,
        id: impl Fn(&T) -> i64,
        read: impl AsyncFnOnce(i64, i64) -> sqlx::Result<Vec<T>>,
    ) -> Result<Page<T>> {
        let Self { after, limit } = self;
        Checks::default()
            .need(
                (1..=MAX_LIMIT).contains(&limit),
                "/limit",
                "it is from 1 to 100",
            )
            .finish()?;
        // One more entry shows whether there is a next page.
        let mut items = read(after, limit + 1).await?;
        let has_more = usize::try_from(limit).is_ok_and(|limit| items.len() > limit);
        let next = if has_more {
            items.pop();
            let last = items.last().map_or(after, id);
            Some(format!("{path}?after={last}&limit={limit}"))
        } else {
            None
        };
        Ok(Page { items, next })
    }
}
