//! `Paging`: the page of a list that a request names, and links to the other pages (RFC 8288).

use apus_http::{Request, Response, StatusCode, header, percent};
use serde::{Deserialize, Serialize};

use super::{FromRequestHead, Rejection, read_fields};
use crate::matched::Matched;
use crate::respond::IntoResponse;

/// An extractor of the page of a list: `?page=2&per_page=50`, or `?after=17` for lists that continue after an entry. By
/// default a page has 20 entries; a client may ask for 1 to 100, or other numbers: `Paging<10, 50>`.
///
/// ```
/// # use apus_handler::Json;
/// # use apus_handler::extract::{PageLinks, Paging};
/// async fn numbers(paging: Paging) -> (PageLinks, Json<Vec<u64>>) {
///     let total = 95; // SELECT COUNT(*)
///     // SELECT ... LIMIT paging.limit() OFFSET paging.offset()
///     let items = (0..total).skip(paging.offset() as usize).take(paging.limit() as usize);
///     (paging.links(total), Json(items.collect()))
/// }
/// ```
///
/// The response to `/numbers?odd=no&page=2&per_page=40` has a field `Link` with the first, previous, next and last page, of
/// which the next is `</numbers?odd=no&per_page=40&page=3>; rel="next"`. More than 100 entries of a page are a 400.
#[derive(Clone, Debug)]
pub struct Paging<const DEFAULT: u32 = 20, const MAX: u32 = 100> {
    page: u32,
    per_page: u32,
    after: Option<String>,
    /// The path, and the query without the parameters of pages.
    target: String,
}

/// The largest number of a page.
const MAX_PAGE: u32 = 1_000_000;

#[derive(Deserialize)]
struct PagingParameters {
    page: Option<u32>,
    per_page: Option<u32>,
    after: Option<String>,
}

/// The place of a page in its list, for templates, and in front of a response the field `Link`: `(links, Json(items))`. A
/// template has `links.page`, `links.pages`, `links.total`, and the URLs `links.first`, `links.prev`, `links.next` and
/// `links.last`, which are none where there is no such page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageLinks {
    /// The page, from 1.
    pub page: u32,
    /// How many pages there are, at least 1; `None` for a list that continues after an entry.
    pub pages: Option<u64>,
    /// How many entries there are; `None` for a list that continues after an entry.
    pub total: Option<u64>,
    /// The URL of the first page.
    pub first: Option<String>,
    /// The URL of the page before.
    pub prev: Option<String>,
    /// The URL of the next page.
    pub next: Option<String>,
    /// The URL of the last page.
    pub last: Option<String>,
}

impl<const DEFAULT: u32, const MAX: u32> Paging<DEFAULT, MAX> {
    /// The page, from 1.
    pub fn page(&self) -> u32 {
        self.page
    }

    /// How many entries it has, for `LIMIT`.
    pub fn limit(&self) -> i64 {
        i64::from(self.per_page)
    }

    /// How many entries are before it, for `OFFSET`.
    pub fn offset(&self) -> i64 {
        i64::from(self.page.saturating_sub(1)).saturating_mul(self.limit())
    }

    /// The entry that it continues after, which the client may have chosen freely. Such a page is as fast as the first one,
    /// and shows no entry twice while others are added.
    pub fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// The links of a list with this number of entries.
    pub fn links(&self, total: u64) -> PageLinks {
        let pages = total.div_ceil(u64::from(self.per_page)).max(1);
        let page = u64::from(self.page);
        let url = |page: u64| self.url(&format!("page={page}"));
        PageLinks {
            page: self.page,
            pages: Some(pages),
            total: Some(total),
            first: (page > 1).then(|| url(1)),
            // After the end, the page before is the last one.
            prev: (page > 1).then(|| url(page.saturating_sub(1).min(pages))),
            next: (page < pages).then(|| url(page.saturating_add(1))),
            last: (page != pages).then(|| url(pages)),
        }
    }

    /// The links of a list that continues after an entry: `None` if it ends here. To know, read one entry more than
    /// [`Paging::limit`].
    pub fn links_after(&self, last: Option<impl std::fmt::Display>) -> PageLinks {
        PageLinks {
            page: self.page,
            next: last.map(|last| self.url(&format!("after={}", encoded(&last.to_string())))),
            first: self.after.as_ref().map(|_| self.url("")),
            ..PageLinks::default()
        }
    }

    /// The URL with a parameter, and the number of entries if it is not the default.
    fn url(&self, parameter: &str) -> String {
        let mut url = self.target.clone();
        let mut add = |parameter: &str| {
            let separator = if url.contains('?') { '&' } else { '?' };
            url.push(separator);
            url.push_str(parameter);
        };
        if self.per_page != DEFAULT {
            add(&format!("per_page={}", self.per_page));
        }
        if !parameter.is_empty() {
            add(parameter);
        }
        url
    }
}

impl<const DEFAULT: u32, const MAX: u32> FromRequestHead for Paging<DEFAULT, MAX> {
    type Rejection = Rejection;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Rejection> {
        let query = request.query().unwrap_or("");
        let status = StatusCode::BAD_REQUEST;
        let PagingParameters {
            page,
            per_page,
            after,
        } = read_fields(query.as_bytes(), status, "query")?;
        let check = |name: &str, value: u32, max: u32| {
            if (1..=max).contains(&value) {
                Ok(value)
            } else {
                Err(Rejection::new(
                    status,
                    format_args!("{name} is from 1 to {max}"),
                ))
            }
        };
        // The URL as the client sees it, also below a group or a mount.
        let mut target = request.original_target().path().to_owned();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let name = parameter.split('=').next().unwrap_or("");
            if !matches!(name, "page" | "per_page" | "after") {
                target.push(if target.contains('?') { '&' } else { '?' });
                target.push_str(parameter);
            }
        }
        Ok(Self {
            page: check("page", page.unwrap_or(1), MAX_PAGE)?,
            per_page: check("per_page", per_page.unwrap_or(DEFAULT), MAX)?,
            after,
            target,
        })
    }
}

/// A text in a query, percent-encoded.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    percent::encode_part_onto(&mut encoded, text.as_bytes());
    encoded
}

/// The field `Link` in front of a response.
impl<T: IntoResponse> IntoResponse for (PageLinks, T) {
    fn into_response(self) -> Response {
        let (links, response) = self;
        let mut response = response.into_response();
        let urls = [
            ("first", links.first),
            ("prev", links.prev),
            ("next", links.next),
            ("last", links.last),
        ];
        let urls = urls
            .into_iter()
            .filter_map(|(relation, url)| Some((relation, url?)));
        // What could end the reference is percent-encoded.
        let urls = urls.map(|(relation, url)| {
            let url = url.replace('>', "%3E").replace('<', "%3C");
            format!("<{url}>; rel=\"{relation}\"")
        });
        let field = urls.collect::<Vec<_>>().join(", ");
        if !field.is_empty() {
            // A URL that was received is a valid value.
            let _ = response
                .headers_mut()
                .try_append(header::LINK.as_str(), field);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paging(page: u32, per_page: u32) -> Paging {
        Paging {
            page,
            per_page,
            after: None,
            target: "/list".to_owned(),
        }
    }

    #[test]
    fn a_list_has_as_many_pages_as_its_entries_begin() {
        for (total, pages) in [(0, 1), (1, 1), (19, 1), (20, 1), (21, 2), (40, 2), (41, 3)] {
            assert_eq!(paging(1, 20).links(total).pages, Some(pages), "{total}");
        }
        let largest = paging(1, 1).links(u64::MAX);
        assert_eq!(largest.pages, Some(u64::MAX));
    }

    #[test]
    fn a_page_begins_behind_the_entries_of_those_before() {
        for (page, per_page, offset) in [
            (1, 20, 0),
            (2, 20, 20),
            (MAX_PAGE, 100, 99_999_900),
            (u32::MAX, u32::MAX, 18_446_744_060_824_649_730_u64),
        ] {
            let expected = i64::try_from(offset).unwrap_or(i64::MAX);
            assert_eq!(paging(page, per_page).offset(), expected, "{page}");
        }
    }

    #[test]
    fn links_are_to_pages_that_there_are() {
        let exists = |page| {
            let links = paging(page, 20).links(60);
            [links.first, links.prev, links.next, links.last].map(|url| url.is_some())
        };
        assert_eq!(exists(1), [false, false, true, true]);
        assert_eq!(exists(2), [true, true, true, true]);
        assert_eq!(exists(3), [true, true, false, false]);
        assert_eq!(exists(4), [true, true, false, true]);
        let past = paging(9, 20).links(60);
        assert_eq!(past.prev.as_deref(), Some("/list?page=3"));
    }

    #[test]
    fn an_entry_in_a_link_is_percent_encoded() {
        let links = paging(1, 50).links_after(Some("a-Z0._~ é&=>"));
        let next = "/list?per_page=50&after=a-Z0._~%20%C3%A9%26%3D%3E";
        assert_eq!(links.next.as_deref(), Some(next));
        assert_eq!(links.first, None);
    }
}
