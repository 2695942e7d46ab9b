//! Interim responses (RFC 9110 section 15.2), from a service to the driver of its connection.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Waker};

use http::StatusCode;

use crate::Headers;

/// The most bytes of interim responses in the queue of one connection. Further ones are dropped: an
/// origin that sends more than its client takes is faulty, and the final response needs none of them.
const MAX_QUEUED_BYTES: usize = 64 * 1024;

/// The memory of an interim response in bytes, without its fields.
const OVERHEAD: usize = 64;

/// Whether a response with this status is interim, and another one follows. A 101 is the last one that HTTP has on its
/// connection (RFC 9110 section 15.2.2).
#[inline]
pub fn is_interim(status: StatusCode) -> bool {
    status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS
}

/// Sends interim responses to the client of one request, such as 103 Early Hints (RFC 8297).
///
/// It comes from [`Request::interim`](crate::Request::interim), is cheap to clone and may outlive the
/// request: responses that it sends after the final response has begun are dropped.
#[derive(Clone, Default)]
pub struct Interim {
    /// `None` for a request without a connection.
    queue: Option<Rc<InterimState>>,
    request: u64,
}

/// The queue of the interim responses of one connection.
///
/// The driver of the connection gives each request an [`Interim`] of its queue, by
/// [`Request::set_interim`](crate::Request::set_interim). After it has polled a service, it removes the
/// queued responses, and sends each whose request has no final response yet.
#[derive(Default)]
pub struct InterimQueue(Rc<InterimState>);

#[derive(Default)]
struct InterimState {
    queued: RefCell<VecDeque<InterimResponse>>,
    bytes: Cell<usize>,
    driver: RefCell<Option<Waker>>,
}

struct InterimResponse {
    request: u64,
    status: StatusCode,
    headers: Headers,
}

impl Interim {
    /// Queues an interim response. The driver of the connection sends it when it runs next.
    ///
    /// A 100 is sent once, and only to a client that waits for it (RFC 9110 section 10.1.1); reading the
    /// body of the request sends it anyway. A 101 and statuses other than 1xx are dropped, and so are all
    /// interim responses to HTTP/1.0 clients. Hop-by-hop fields, fields about the body, and those that applications
    /// have for the server are left out.
    pub fn send(&self, status: StatusCode, mut headers: Headers) {
        if let Some(queue) = self.queue.as_ref().filter(|_| is_interim(status)) {
            headers.remove_internal();
            queue.add(InterimResponse {
                request: self.request,
                status,
                headers,
            });
        }
    }
}

impl fmt::Debug for Interim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interim")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

impl InterimQueue {
    /// The sender for one request. `request` is a number that no other request of the connection has.
    pub fn sender(&self, request: u64) -> Interim {
        Interim {
            queue: Some(Rc::clone(&self.0)),
            request,
        }
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.0.queued.borrow().is_empty()
    }

    /// Removes the next response, and returns it with the number of its request.
    pub fn next(&self) -> Option<(u64, StatusCode, Headers)> {
        let next = self.0.queued.borrow_mut().pop_front()?;
        let bytes = self.0.bytes.get().saturating_sub(next.cost());
        self.0.bytes.set(bytes);
        Some((next.request, next.status, next.headers))
    }

    /// Wakes `cx` when a response is added.
    pub fn watch(&self, cx: &Context<'_>) {
        let mut driver = self.0.driver.borrow_mut();
        match &*driver {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *driver = Some(cx.waker().clone()),
        }
    }
}

impl fmt::Debug for InterimQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterimQueue")
            .field("bytes", &self.0.bytes.get())
            .finish_non_exhaustive()
    }
}

impl InterimState {
    fn add(&self, added: InterimResponse) {
        let bytes = self.bytes.get().saturating_add(added.cost());
        if bytes > MAX_QUEUED_BYTES {
            return;
        }
        self.bytes.set(bytes);
        self.queued.borrow_mut().push_back(added);
        if let Some(driver) = &*self.driver.borrow() {
            driver.wake_by_ref();
        }
    }
}

impl InterimResponse {
    fn cost(&self) -> usize {
        self.headers.wire().len().saturating_add(OVERHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakes_the_driver_and_keeps_the_order_of_all_requests() {
        let count = Arc::new(WakeCounter::default());
        let waker = Waker::from(Arc::clone(&count));
        let queue = InterimQueue::default();
        queue.watch(&Context::from_waker(&waker));
        let (one, two) = (queue.sender(1), queue.sender(2));
        two.send(StatusCode::EARLY_HINTS, Headers::new());
        one.send(StatusCode::CONTINUE, Headers::new());
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        let next = || queue.next().map(|(request, status, _)| (request, status));
        assert_eq!(next(), Some((2, StatusCode::EARLY_HINTS)));
        assert_eq!(next(), Some((1, StatusCode::CONTINUE)));
        assert_eq!(next(), None);
    }

    #[test]
    fn takes_interim_statuses_only() {
        let queue = InterimQueue::default();
        let interim = queue.sender(1);
        for status in [StatusCode::SWITCHING_PROTOCOLS, StatusCode::OK] {
            interim.send(status, Headers::new());
        }
        assert!(queue.is_empty());
        Interim::default().send(StatusCode::EARLY_HINTS, Headers::new());
    }

    #[test]
    fn no_client_sees_a_field_for_the_server_in_an_interim_response() {
        let queue = InterimQueue::default();
        let mut hints = Headers::new();
        for name in ["x-accel-redirect", "link", "x-sendfile", "x-apus-events"] {
            hints.try_append(name, "/a").unwrap();
        }
        queue.sender(1).send(StatusCode::EARLY_HINTS, hints);
        let (_, _, sent) = queue.next().unwrap();
        assert_eq!(sent.wire(), b"link: /a\r\n");
    }

    #[test]
    fn holds_no_more_than_its_bytes_and_takes_more_when_they_were_sent() {
        let queue = InterimQueue::default();
        let interim = queue.sender(1);
        let mut hints = Headers::new();
        hints.try_append("link", "x".repeat(1000)).unwrap();
        let fill = || {
            for _ in 0..1000 {
                interim.send(StatusCode::EARLY_HINTS, hints.clone());
            }
            let mut held = 0;
            while queue.next().is_some() {
                held += 1;
            }
            held
        };
        assert_eq!(fill(), 61);
        assert_eq!(fill(), 61);
    }
}
