//! The observers of a response over a stream, and what they are told at its end.

use std::time::{Duration, Instant};

use apus_http::{Completion, Response, ResponseObservers, ResponseOutcome, StatusCode};

/// The observers of a response's completion, and its data so far.
pub(crate) struct CompletionObservers {
    observers: ResponseObservers,
    completion: Completion,
    arrived: Instant,
    /// When the transport had the whole response, if that is known.
    sent_in: Option<Duration>,
}

impl CompletionObservers {
    /// Takes the observers of `response`; mostly there are none.
    pub(super) fn of(response: &mut Response, arrived: Option<Instant>) -> Option<Box<Self>> {
        response.is_observed().then(|| {
            Box::new(Self {
                observers: response.take_observers(),
                completion: Completion {
                    status: StatusCode::OK,
                    body_bytes: 0,
                    bytes: 0,
                    duration: Duration::ZERO,
                    first_byte: None,
                    outcome: ResponseOutcome::Complete,
                    origin: None,
                    cache: None,
                    fields: None,
                },
                arrived: arrived.unwrap_or_else(Instant::now),
                sent_in: None,
            })
        })
    }

    pub(super) fn sent_head(&mut self, status: StatusCode, bytes: u64) {
        self.completion.status = status;
        self.completion.bytes += bytes;
    }

    /// Notes that the head is sent before the body.
    pub(super) fn note_first_byte(&mut self) {
        self.completion.first_byte = Some(self.arrived.elapsed());
    }

    /// Counts data, and its framing.
    pub(super) fn sent(&mut self, body_bytes: u64, framing_bytes: u64) {
        self.completion.body_bytes += body_bytes;
        self.completion.bytes += body_bytes + framing_bytes;
    }

    /// Notes that the transport has the whole response: what follows is not the time of the server.
    #[cfg(feature = "http3")]
    pub(crate) fn sent_all(&mut self) {
        self.sent_in = Some(self.arrived.elapsed());
    }

    /// Reports how the response ended.
    pub(crate) fn notify(mut self, outcome: ResponseOutcome) {
        self.completion.outcome = outcome;
        self.completion.duration = self.sent_in.unwrap_or_else(|| self.arrived.elapsed());
        self.observers.notify(&self.completion);
    }
}
