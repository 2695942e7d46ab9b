//! What the cache of a location consists of: the stored responses, the settings, and the service behind it.

use std::rc::Rc;
use std::sync::Arc;

use crate::policy::RequestKey;
use crate::store::{Object, StoreKey};
use apus_compress::Compression;
use apus_http::fields::{ForwardReason, Handling};
use apus_http::{Request, Response, ResponseFuture, Service};

use super::cache::Cache;
use super::cache_status::CacheStatusWriter;
use super::settings::CacheSettings;

/// A location on one worker, whose responses the cache stores.
pub(super) struct CachedLocation {
    pub(super) cache: Cache,
    pub(super) site: Arc<str>,
    pub(super) settings: Arc<CacheSettings>,
    pub(super) compression: Compression,
    /// The service behind the cache.
    pub(super) inner: Rc<dyn Service>,
}

impl CachedLocation {
    /// Forwards a request without storing the response.
    pub(super) fn forward(&self, request: Request, reason: ForwardReason) -> ResponseFuture {
        let status_writer = self.settings.status_writer();
        self.inner
            .call(request)
            .map(move |response| mark_uncached(response, reason, status_writer))
    }

    /// Reports a response of the service behind as not stored.
    pub(super) fn uncached_response(&self, response: Response, reason: ForwardReason) -> Response {
        mark_uncached(response, reason, self.settings.status_writer())
    }

    pub(super) fn store_key(&self, key: &RequestKey) -> StoreKey {
        StoreKey::new(&self.site, key.bytes())
    }

    /// Removes an object from memory and disk.
    pub(super) fn drop_object(&self, object: &Arc<Object>) {
        self.cache.0.store.remove(object);
    }
}

/// Reports a response of the service behind as not stored.
fn mark_uncached(
    mut response: Response,
    reason: ForwardReason,
    status_writer: CacheStatusWriter,
) -> Response {
    let handling = Handling::Forwarded {
        reason,
        status: None,
        stored: false,
        collapsed: false,
    };
    status_writer.write(&mut response, handling, None);
    response
}
