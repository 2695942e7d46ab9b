//! Channels: who listens, and what is published. Their clients' connections live here and not in PHP.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use apus_http::{BodyError, BodyStream, EventLines, Frame};
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::wire::Form;

/// The channels of one application, shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    channels: Mutex<HashMap<Bytes, Vec<mpsc::Sender<Bytes>>>>,
}

/// Events that may wait for one client. One that reads more slowly is cut off, and can come again: an
/// `EventSource` does so by itself.
const MAX_WAITING: usize = 256;

impl Hub {
    /// What is published on these channels from now on, as `text/event-stream`.
    pub(crate) fn listen<'a>(&self, channels: impl Iterator<Item = &'a [u8]>) -> Listening {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let mut known = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        for channel in channels {
            known
                .entry(Bytes::copy_from_slice(channel))
                .or_default()
                .push(sender.clone());
        }
        Listening(receiver)
    }

    /// Sends a message to all who listen. Those who went, or read too slowly, are forgotten.
    pub(crate) fn publish(&self, channel: &[u8], form: Form, message: &Bytes) {
        let mut known = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(listeners) = known.get_mut(channel) else {
            return;
        };
        let event = match form {
            Form::EventStream => message.clone(),
            Form::Text => as_event(message),
            // An event stream is UTF-8 text.
            Form::Binary => return,
        };
        listeners.retain(|listener| listener.try_send(event.clone()).is_ok());
        if listeners.is_empty() {
            known.remove(channel);
        }
    }

    /// How many listen, to any channel.
    pub(crate) fn listeners(&self) -> usize {
        let mut known = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, listeners| {
            listeners.retain(|listener| !listener.is_closed());
            !listeners.is_empty()
        });
        known.values().map(Vec::len).sum()
    }

    /// Ends all.
    pub(crate) fn close(&self) {
        let mut known = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        known.clear();
    }
}

/// An event with this text: a `data` line for each of its lines. An event stream is UTF-8; what is not is
/// replaced.
fn as_event(text: &[u8]) -> Bytes {
    let mut event = EventLines::default();
    event.data(&String::from_utf8_lossy(text));
    event.finish()
}

/// What somebody who listens gets. It ends with the application.
#[derive(Debug)]
pub(crate) struct Listening(mpsc::Receiver<Bytes>);

impl BodyStream for Listening {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        self.0
            .poll_recv(cx)
            .map(|event| event.map(|event| Ok(Frame::Data(event))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(listening: &mut Listening) -> Option<Bytes> {
        let polled = listening.poll_frame(&mut Context::from_waker(std::task::Waker::noop()));
        match polled {
            Poll::Ready(Some(Ok(Frame::Data(bytes)))) => Some(bytes),
            _ => None,
        }
    }

    #[test]
    fn those_who_listen_get_what_is_published_on_their_channels() {
        let hub = Hub::default();
        let mut both = hub.listen([&b"a"[..], b"b"].into_iter());
        let mut one = hub.listen([&b"b"[..]].into_iter());
        hub.publish(b"a", Form::Text, &"first\nline\r\n".into());
        hub.publish(b"b", Form::EventStream, &"id: 1\ndata: x\n\n".into());
        hub.publish(b"c", Form::Text, &"nobody".into());
        hub.publish(b"b", Form::Binary, &"not text".into());
        assert_eq!(
            next(&mut both).unwrap(),
            "data: first\ndata: line\ndata: \n\n"
        );
        assert_eq!(next(&mut both).unwrap(), "id: 1\ndata: x\n\n");
        assert_eq!(next(&mut one).unwrap(), "id: 1\ndata: x\n\n");
        assert_eq!((next(&mut both), next(&mut one)), (None, None));
        assert_eq!(hub.listeners(), 3);
        drop(both);
        assert_eq!(hub.listeners(), 1);
    }

    #[test]
    fn a_message_cannot_end_its_event() {
        assert_eq!(
            as_event(b"a\r\rdata: b\xff"),
            "data: a\ndata: \ndata: data: b\u{fffd}\n\n"
        );
        assert_eq!(as_event(b""), "data: \n\n");
    }

    #[test]
    fn who_reads_too_slowly_is_cut_off() {
        let hub = Hub::default();
        let mut slow = hub.listen([&b"a"[..]].into_iter());
        for _ in 0..=MAX_WAITING {
            hub.publish(b"a", Form::Text, &"x".into());
        }
        assert_eq!(hub.listeners(), 0);
        for _ in 0..MAX_WAITING {
            assert!(next(&mut slow).is_some());
        }
        let end = slow.poll_frame(&mut Context::from_waker(std::task::Waker::noop()));
        assert!(matches!(end, Poll::Ready(None)));
    }
}
