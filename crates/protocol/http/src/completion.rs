//! The end of a response, and who is told of it.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use http::StatusCode;

use crate::Headers;
use crate::fields::CacheResult;

/// How a response ended.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The status that was sent.
    pub status: StatusCode,
    /// Bytes of the body that were handed to the transport, without head and framing.
    pub body_bytes: u64,
    /// All bytes that were handed to the transport, before TLS.
    pub bytes: u64,
    /// The time from the first byte of the request's head to the last byte of the response.
    pub duration: Duration,
    /// The time to the head of the response; `None` if all left together, after [`Completion::duration`].
    pub first_byte: Option<Duration>,
    /// Whether the client can have received the whole response.
    pub outcome: ResponseOutcome,
    /// The origin of the response, if there is one and the service has set it.
    pub origin: Option<ResponseOrigin>,
    /// The result of the cache, if there is one and the service has set it.
    pub cache: Option<CacheResult>,
    /// The field lines of the response without those of the connection, for observers that asked for them.
    pub fields: Option<Arc<Headers>>,
}

/// The origin of a response, for logs and [`Response::remove_internal_of_origin`](crate::Response::remove_internal_of_origin).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseOrigin {
    /// Its address.
    pub address: Arc<str>,
    /// The status of its response.
    pub status: StatusCode,
    /// The time from the choice of the origin to the head of its response.
    pub duration: Duration,
}

/// Whether a client can have received a whole response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOutcome {
    /// The whole response was handed to the transport.
    Complete,
    /// The client closed the connection, or read too slowly.
    ClientGone,
    /// The source of the body failed. The connection was closed early, so that the client notices.
    SourceFailed,
}

/// Called once when a response was sent or aborted.
pub type ResponseObserver = Box<dyn FnOnce(&Completion)>;

/// Counts responses on one worker. Many of them are counted, so it is called without an allocation for each.
pub trait ResponseCounter {
    /// Counts a response that was sent, or in part. `key` is that of its [`ResponseCount`].
    fn complete(&self, key: ResponseKey, completion: &Completion);

    /// Counts a request that gets no response, or whose response is dropped. The status is the one that it would have had.
    fn abandon(&self, key: ResponseKey, status: Option<StatusCode>);
}

/// What a [`ResponseCounter`] needs to know of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseKey {
    /// What is counted.
    pub series: u32,
    /// The number of the record of its request.
    pub record: u32,
}

/// A counter that many responses share. It is as small as a pointer, since each response has room for it.
#[derive(Clone)]
pub struct SharedResponseCounter(Rc<Box<dyn ResponseCounter>>);

impl SharedResponseCounter {
    /// Shares a counter.
    pub fn new(counter: impl ResponseCounter + 'static) -> Self {
        Self(Rc::new(Box::new(counter)))
    }
}

impl fmt::Debug for SharedResponseCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedResponseCounter")
            .finish_non_exhaustive()
    }
}

/// Counts a request, and its response once that is sent or aborted.
pub struct ResponseCount {
    /// `None`: it is counted.
    counter: Option<SharedResponseCounter>,
    key: ResponseKey,
    status: Option<StatusCode>,
}

impl ResponseCount {
    /// Counts a request by this counter, which gets `key`.
    pub fn new(counter: SharedResponseCounter, key: ResponseKey) -> Self {
        Self {
            counter: Some(counter),
            key,
            status: None,
        }
    }

    /// The key.
    pub fn key(&self) -> ResponseKey {
        self.key
    }

    /// Changes the key.
    pub fn set_key(&mut self, key: ResponseKey) {
        self.key = key;
    }

    pub(crate) fn set_status(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    fn complete(mut self, completion: &Completion) {
        if let Some(counter) = self.counter.take() {
            counter.0.complete(self.key, completion);
        }
    }
}

impl Drop for ResponseCount {
    fn drop(&mut self) {
        let Some(counter) = self.counter.take() else {
            return;
        };
        // The connection responds with 500 when a service panics.
        let of_panic = || thread::panicking().then_some(StatusCode::INTERNAL_SERVER_ERROR);
        counter.0.abandon(self.key, self.status.or_else(of_panic));
    }
}

impl fmt::Debug for ResponseCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseCount")
            .field("key", &self.key)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// Who is told of the end of a response.
#[derive(Default)]
pub struct ResponseObservers {
    count: Option<ResponseCount>,
    others: Vec<ResponseObserver>,
}

impl ResponseObservers {
    pub(crate) fn new(count: Option<ResponseCount>, others: Vec<ResponseObserver>) -> Self {
        Self { count, others }
    }

    pub(crate) fn into_parts(self) -> (Option<ResponseCount>, Vec<ResponseObserver>) {
        (self.count, self.others)
    }

    /// Tells them.
    pub fn notify(self, completion: &Completion) {
        if let Some(count) = self.count {
            count.complete(completion);
        }
        for observer in self.others {
            observer(completion);
        }
    }
}

impl fmt::Debug for ResponseObservers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseObservers")
            .field("count", &self.count)
            .field("others", &self.others.len())
            .finish()
    }
}
