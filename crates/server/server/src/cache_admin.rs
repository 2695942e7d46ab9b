//! The cache on the control socket: status, lists and purges.

use std::fmt;
use std::time::SystemTime;

use apus_cache::policy::{KeyRules, RequestKey, StoredResponse, Timestamp};
use apus_cache::service::{Cache, PurgeRequest};
use apus_cache::store::{CacheStatistics, PurgeSelector, StoreListing};
use apus_control::PurgeScope;
use apus_http::path::InvalidPath;
use serde_json::{Value, json};

use crate::url::{InvalidUrl, Url, scheme};
use apus_config as config;

/// A handler with a cache: its site and the rules of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CachedHandler {
    site: Box<str>,
    key: KeyRules,
}

impl CachedHandler {
    /// The handlers of a configuration with different keys.
    pub(crate) fn all(plan: &config::ServerPlan) -> Vec<Self> {
        let mut places: Vec<Self> = Vec::new();
        for (site, settings) in plan.caches() {
            let place = Self {
                site: site.into(),
                key: settings.rules.key.clone(),
            };
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }
}

/// Checks that a site may have responses for the URL of a purge.
///
/// # Errors
/// It is not a URL, or of no site.
pub(crate) fn check_url(plan: &config::ServerPlan, what: &PurgeScope) -> Result<(), PurgeError> {
    let (PurgeScope::Url(url) | PurgeScope::Prefix(url)) = what else {
        return Ok(());
    };
    Url::parse(url)?.check_site(plan)?;
    Ok(())
}

/// The purges of `what`, in one site or in all. The key of a URL depends on the handler.
///
/// # Errors
/// The site has no cache, or the URL is not valid.
pub(crate) fn purges(
    places: &[CachedHandler],
    site: Option<&str>,
    what: &PurgeScope,
    soft: bool,
) -> Result<Vec<PurgeRequest>, PurgeError> {
    let is_meant = |place: &&CachedHandler| site.is_none_or(|site| *place.site == *site);
    let meant: Vec<_> = places.iter().filter(is_meant).collect();
    if let Some(site) = site.filter(|_| meant.is_empty()) {
        let mut known: Vec<_> = places.iter().map(|place| &*place.site).collect();
        known.dedup();
        return Err(PurgeError::NoCache {
            site: site.to_owned(),
            known: known.join(", "),
        });
    }
    let everywhere = |selector| {
        let site = site.map(Box::from);
        vec![PurgeRequest {
            site,
            selector,
            soft,
        }]
    };
    let (url, is_prefix) = match what {
        PurgeScope::All => return Ok(everywhere(PurgeSelector::All)),
        PurgeScope::Tag(tag) => return Ok(everywhere(PurgeSelector::Tag(tag.as_bytes().into()))),
        PurgeScope::Url(url) => (url, false),
        PurgeScope::Prefix(url) => (url, true),
    };
    let url = Url::parse(url)?;
    let (scheme, target) = (scheme(url.is_secure), url.target());
    let purge = |place: &CachedHandler| {
        let of = if is_prefix {
            PurgeRequest::prefix
        } else {
            PurgeRequest::url
        };
        let what = of(&place.key, scheme, url.authority, &target);
        Ok(PurgeRequest {
            site: Some(place.site.clone()),
            selector: what?,
            soft,
        })
    };
    meant.into_iter().map(purge).collect()
}

/// Why a purge is refused, in words for the operator.
#[derive(Debug)]
pub(crate) enum PurgeError {
    /// It is not a URL, or of no site.
    Url(InvalidUrl),
    /// Requests for its path are rejected.
    Path(InvalidPath),
    /// The site has no cache.
    NoCache {
        /// The site.
        site: String,
        /// The names of those that have one, with commas between.
        known: String,
    },
    /// The configuration has no cache.
    Off,
}

impl fmt::Display for PurgeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(error) => error.fmt(f),
            Self::Path(error) => error.fmt(f),
            Self::NoCache { known, .. } if known.is_empty() => f.write_str("no site has a cache"),
            Self::NoCache { site, known } => {
                write!(f, "no site `{site}` has a cache; expected one of {known}")
            }
            Self::Off => f.write_str("the configuration has no cache"),
        }
    }
}

impl From<InvalidUrl> for PurgeError {
    fn from(error: InvalidUrl) -> Self {
        Self::Url(error)
    }
}

impl From<InvalidPath> for PurgeError {
    fn from(error: InvalidPath) -> Self {
        Self::Path(error)
    }
}

/// A list of stored responses as JSON. Of their keys it has the URL only: the rest may be secrets of clients.
pub(crate) fn list(stored: &StoreListing) -> Value {
    let now = Timestamp::from(SystemTime::now());
    let objects = stored.objects.iter().map(|object| {
        let response = StoredResponse::decode(&object.metadata.policy).ok();
        let response = response.as_ref();
        let field = |name: &str| {
            let value = response.and_then(|response| response.headers().get(name));
            value.map(|value| String::from_utf8_lossy(value).into_owned())
        };
        let tags = object.tags.iter().map(|tag| String::from_utf8_lossy(tag));
        json!({
            "site": &**object.key.site(),
            "url": RequestKey::uri_of(object.key.bytes()),
            "status": response.map(|response| response.status().as_u16()),
            "content_type": field("content-type"),
            "bytes": object.bytes,
            "length": object.length,
            "age_seconds": response.map(|response| response.age(now)),
            "fresh_seconds": response.map(|response| response.ttl(now)),
            "is_fresh": response.is_some_and(|response| response.is_fresh(now) && !object.is_purged_softly),
            "is_variant": object.is_variant,
            "in_memory": object.in_memory,
            "hits": object.hits,
            "tags": tags.collect::<Vec<_>>(),
        })
    });
    json!({
        "responses": objects.collect::<Vec<_>>(),
        "is_complete": stored.is_complete,
    })
}

/// The status of the cache as JSON.
pub(crate) fn status(cache: &Cache, has_disk: bool) -> Value {
    let CacheStatistics {
        hits,
        misses,
        collapsed,
        stored,
        evictions,
        purges,
        memory_objects,
        memory_bytes,
        disk_objects,
        disk_bytes,
        disk_scanned,
        disk_hits,
        disk_evictions,
        disk_errors,
        disk_damaged,
        disk_verified_bytes,
        disk_skipped,
        ..
    } = cache.statistics();
    let disk = has_disk.then(|| {
        json!({
            "objects": disk_objects,
            "bytes": disk_bytes,
            "scanned": disk_scanned,
            "hits": disk_hits,
            "evictions": disk_evictions,
            "errors": disk_errors,
            "damaged": disk_damaged,
            "verified_bytes": disk_verified_bytes,
            "skipped": disk_skipped,
        })
    });
    json!({
        "hits": hits,
        "misses": misses,
        "collapsed": collapsed,
        "stored": stored,
        "evictions": evictions,
        "purges": purges,
        "memory_objects": memory_objects,
        "memory_bytes": memory_bytes,
        "disk": disk,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn places(text: &str) -> Vec<CachedHandler> {
        let plan = config::parse_str(text, "apus.toml", Path::new("."), &|_| None);
        CachedHandler::all(&plan.unwrap_or_else(|mistakes| panic!("{mistakes}")))
    }

    const SITES: &str = "[[sites]]\nname = \"one\"\nserver_name = \"one.example\"\nlisten = 80\n\
                         upstream = \"http://[::1]:1\"\ncache = true\n\
                         [[sites.locations]]\npath = \"/a/\"\n\
                         [[sites.locations]]\npath = \"/b/\"\ncache.key.query = false\n\
                         [[sites]]\nname = \"two\"\nserver_name = \"two.example\"\nlisten = 80\n\
                         upstream = \"http://[::1]:1\"\ncache = true\n\
                         [[sites]]\nname = \"three\"\nserver_name = \"three.example\"\nlisten = 80\n\
                         upstream = \"http://[::1]:1\"\n";

    fn shown(purges: &[PurgeRequest]) -> Vec<String> {
        let shown = |purge: &PurgeRequest| {
            let site = purge.site.as_deref().unwrap_or("*");
            let what = match &purge.selector {
                PurgeSelector::All => "all".to_owned(),
                PurgeSelector::Key(key) => format!("key {}", key.escape_ascii()),
                PurgeSelector::Prefix(key) => format!("prefix {}", key.escape_ascii()),
                PurgeSelector::Tag(tag) => format!("tag {}", tag.escape_ascii()),
            };
            format!("{site} {what}{}", if purge.soft { ", soft" } else { "" })
        };
        purges.iter().map(shown).collect()
    }

    #[test]
    fn an_address_is_taken_out_by_the_keys_of_every_place() {
        let places = places(SITES);
        assert_eq!(places.len(), 3);
        let of = |site, what, soft| shown(&purges(&places, site, &what, soft).unwrap());
        let url = "http://One.Example:80/b/x?q".to_owned();
        assert_eq!(
            of(Some("one"), PurgeScope::Url(url.clone()), false),
            ["one key hone.example/b/x?q", "one key hone.example/b/x"]
        );
        assert_eq!(of(None, PurgeScope::Url(url.clone()), false).len(), 3);
        // As the requests for it are sent on.
        let spelled = PurgeScope::Url("http://one.example/x/..//a%20b?/../q".to_owned());
        assert_eq!(
            of(Some("two"), spelled, false),
            ["two key hone.example/a%20b?/../q"]
        );
        assert_eq!(
            of(Some("two"), PurgeScope::Prefix(url), true),
            ["two prefix hone.example/b/x?q, soft"]
        );
        assert_eq!(of(None, PurgeScope::All, false), ["* all"]);
        assert_eq!(
            of(Some("two"), PurgeScope::Tag("a".to_owned()), true),
            ["two tag a, soft"]
        );
    }

    #[test]
    fn reports_what_cannot_be_purged() {
        let places = places(SITES);
        let failure = |site, what| purges(&places, site, &what, false).unwrap_err().to_string();
        let unknown = failure(Some("three"), PurgeScope::All);
        assert_eq!(
            unknown,
            "no site `three` has a cache; expected one of one, two"
        );
        let no_url = failure(None, PurgeScope::Url("/a".to_owned()));
        assert!(no_url.contains("`/a` is not a URL"), "{no_url}");
        let no_path = failure(None, PurgeScope::Prefix("http://a/%zz".to_owned()));
        assert!(no_path.contains("a % in the path"), "{no_path}");
        let none = purges(&[], Some("a"), &PurgeScope::All, false).unwrap_err();
        assert_eq!(none.to_string(), "no site has a cache");
    }
}
