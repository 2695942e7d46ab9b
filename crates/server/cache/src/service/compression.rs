//! Compressed forms of stored responses (RFC 9110 section 8.4), made once for all workers and
//! stored with the object.
//!
//! A short body is compressed when it is first sent to a client that accepts it. A longer one is
//! compressed on a thread that may block; until that is done, the site compresses the response
//! while it is sent.

use std::io;
use std::sync::Arc;

use crate::policy::StoredResponse;
use crate::store::{EncodeTicket, Object};
use apus_http::Headers;
use apus_http::fields::Coding;
use bytes::Bytes;

use super::cache::Cache;
use apus_compress::{Compression, Encoding, EncodingNegotiation, compress};

/// A body of at most this many bytes is compressed immediately.
const MAX_IMMEDIATE: u64 = 32 * 1024;

/// A longer body is not compressed by the cache. The site may compress it while it is sent.
const MAX_LENGTH: u64 = 32 << 20;

/// Makes the compressed forms of stored responses that the configuration allows.
#[derive(Clone, Copy)]
pub(super) struct ResponseCompressor<'a> {
    pub(super) cache: &'a Cache,
    pub(super) compression: Compression,
}

/// The form in which a response is sent to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseForm {
    /// As it is stored. The site may still compress it.
    Stored,
    /// As it is stored, for a client that accepts none of the compressed forms.
    Identity,
    /// Compressed with this content coding.
    Coded(Coding),
}

impl ResponseForm {
    /// The form that a client with these request fields gets of a response that is worth
    /// compressing.
    pub(super) fn of(headers: &Headers, compression: Compression) -> Self {
        match EncodingNegotiation::for_body(headers, compression).coding() {
            Some(coding) => Self::Coded(coding),
            None => Self::Identity,
        }
    }

    /// Changes the header fields of a response to describe this form.
    pub(super) fn describe(self, headers: &mut Headers) {
        match self {
            Self::Stored => {}
            Self::Identity => apus_compress::vary(headers),
            Self::Coded(coding) => {
                apus_compress::vary(headers);
                apus_compress::describe(headers, coding);
            }
        }
    }
}

/// Whether any compressed forms are made.
pub(super) fn is_any_allowed(compression: Compression) -> bool {
    [Coding::Brotli, Coding::Zstd, Coding::Gzip]
        .iter()
        .any(|coding| compression.allows(*coding))
}

/// Whether compressed forms of a response are made.
pub(super) fn is_worthwhile(
    stored: &StoredResponse,
    length: Option<u64>,
    compression: Compression,
) -> bool {
    is_any_allowed(compression)
        && length
            .is_some_and(|length| length >= compression.min_length.max(1) && length <= MAX_LENGTH)
        && apus_compress::is_compressible(stored.status(), stored.headers())
}

impl ResponseCompressor<'_> {
    /// The body in a content coding; `None` if it is not compressed yet.
    pub(super) fn compressed(self, object: &Arc<Object>, coding: Coding) -> Option<Bytes> {
        let index = coding as usize;
        if let Some(form) = object.encoded_form(index) {
            return Some(form.clone());
        }
        let ticket = object.claim_encoded_form(&self.cache.0.store, index)?;
        let encoding = Encoding::of_dynamic(coding, self.compression);
        match object.bytes().cloned() {
            // The other connections of the worker wait meanwhile, so only what takes little time is compressed here. A longer
            // body is sent as it is stored until its compressed form is there.
            Some(bytes) if bytes.len() as u64 <= MAX_IMMEDIATE => {
                make(ticket, encoding, || Ok(Some(bytes)));
            }
            _ => {
                let object = Arc::clone(object);
                self.make_on_blocking_thread(ticket, encoding, move || object.read_whole());
            }
        }
        object.encoded_form(index).cloned()
    }

    /// Compresses on a thread that may block, unless the limit of such threads is reached.
    fn make_on_blocking_thread(
        self,
        ticket: EncodeTicket,
        encoding: Encoding,
        read: impl FnOnce() -> io::Result<Option<Bytes>> + Send + 'static,
    ) {
        // Without a permit, a later request for the response tries again.
        if let Ok(permit) = self.cache.0.compression_permits.clone().try_acquire_owned() {
            tokio::task::spawn_blocking(move || {
                make(ticket, encoding, read);
                drop(permit);
            });
        }
    }
}

/// Compresses the body that `read` returns. If there is none, because it is not completely on disk
/// yet, a later request tries again.
fn make(
    ticket: EncodeTicket,
    encoding: Encoding,
    read: impl FnOnce() -> io::Result<Option<Bytes>>,
) {
    let compress = |body: Bytes| compress(&body, encoding);
    let made = read().and_then(|body| body.map(compress).transpose());
    match made {
        Ok(Some(form)) => ticket.keep(form.into()),
        Ok(None) => drop(ticket),
        Err(error) => {
            tracing::error!(%error, "cannot compress a stored response");
            ticket.refuse();
        }
    }
}
