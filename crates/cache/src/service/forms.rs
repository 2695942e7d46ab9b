//! Compressed forms of stored responses (RFC 9110 section 8.4).
//!
//! Each is made once for all workers and kept beside the object.
//!
//! Short content is compressed when it is first sent to somebody who accepts that; longer content on
//! a thread that may block, while the first ones are sent it as the site compresses it.

use std::io;
use std::sync::Arc;

use crate::policy::Stored;
use crate::store::FormTicket;
use apus_http::Headers;
use apus_http::fields::Coding;
use bytes::Bytes;

use super::answer::Prepared;
use super::settings::Cache;
use apus_compress::{Compression, Encoding, EncodingNegotiation, compress};

/// Content that is not longer is compressed at once.
const AT_ONCE: u64 = 32 * 1024;

/// Content that is longer is left as it is, or for the site to compress as it is sent.
const MOST: u64 = 32 << 20;

/// Where forms of what is stored are made, and which.
#[derive(Clone, Copy)]
pub(super) struct Forming<'a> {
    pub(super) cache: &'a Cache,
    pub(super) compression: Compression,
}

/// The form in which a response goes to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As it is stored; what else becomes of it is for others to say.
    Stored,
    /// As it is stored, for one that could have had another form.
    Identity,
    /// Compressed.
    Coded(Coding),
}

impl Form {
    /// The form that a client with these fields is to get of a response that is worth compressing.
    pub(super) fn of(headers: &Headers, compression: Compression) -> Self {
        match EncodingNegotiation::for_body(headers, compression).coding() {
            Some(coding) => Self::Coded(coding),
            None => Self::Identity,
        }
    }

    /// Makes the fields of a response those of this form.
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

impl Forming<'_> {
    /// Whether other forms of a response are made, as far as what is stored of it tells.
    pub(super) fn is_worthwhile(self, stored: &Stored, length: Option<u64>) -> bool {
        let is_some = [Coding::Brotli, Coding::Zstd, Coding::Gzip]
            .iter()
            .any(|coding| self.compression.allows(*coding));
        is_some
            && length.is_some_and(|length| {
                length >= self.compression.min_length.max(1) && length <= MOST
            })
            && apus_compress::is_compressible(stored.status(), stored.headers())
    }

    /// The content in a form; `None` if it is not there yet.
    pub(super) fn content(self, prepared: &Prepared, coding: Coding) -> Option<Bytes> {
        let object = &prepared.object;
        let number = coding as usize;
        if let Some(form) = object.form(number) {
            return Some(form.clone());
        }
        let kept = &self.cache.0;
        let ticket = object.make_form(&kept.store, number)?;
        let encoding = Encoding::of_dynamic(coding, self.compression);
        match object.bytes().cloned() {
            Some(bytes) if bytes.len() as u64 <= AT_ONCE => {
                make(ticket, encoding, || Ok(Some(bytes)));
            }
            _ => {
                let object = Arc::clone(object);
                self.make_later(ticket, encoding, move || object.read_whole());
            }
        }
        object.form(number).cloned()
    }

    /// Makes a form on a thread that may block, unless there is enough to do already.
    fn make_later(
        self,
        ticket: FormTicket,
        encoding: Encoding,
        content: impl FnOnce() -> io::Result<Option<Bytes>> + Send + 'static,
    ) {
        if let Ok(permit) = self.cache.0.forming.clone().try_acquire_owned() {
            tokio::task::spawn_blocking(move || {
                make(ticket, encoding, content);
                drop(permit);
            });
        }
    }
}

/// Makes a form of what `content` reads. If there is nothing, as not all of it is on disk yet, it is left
/// for the next who comes.
fn make(
    ticket: FormTicket,
    encoding: Encoding,
    content: impl FnOnce() -> io::Result<Option<Bytes>>,
) {
    let compress = |content: Bytes| compress(&content, encoding);
    let made = content().and_then(|content| content.map(compress).transpose());
    match made {
        Ok(Some(form)) => ticket.keep(form.into()),
        Ok(None) => drop(ticket),
        Err(error) => {
            tracing::error!(%error, "cannot compress a stored response");
            ticket.refuse();
        }
    }
}
