//! The channels of an application, whose events are sent to clients as `text/event-stream`.

use std::task::{Context, Poll};

use apus_http::{BodyError, BodyStream, EventLines, Frame};
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::topics::Topics;
use crate::wire::MessageFormat;

/// The channels of one application, shared by all threads. A client that reads too slowly is disconnected, and
/// may reconnect: an `EventSource` does so by itself.
#[derive(Debug, Default)]
pub(crate) struct EventHub {
    channels: Topics<Bytes>,
}

impl EventHub {
    /// The events that are published on these channels from now on, as `text/event-stream`.
    pub(crate) fn subscribe<'a>(
        &self,
        channels: impl Iterator<Item = &'a [u8]>,
    ) -> EventSubscription {
        let (id, receiver) = self.channels.add(());
        let mut has_channel = false;
        for channel in channels {
            has_channel = true;
            self.channels
                .join(Bytes::copy_from_slice(channel), id.clone());
        }
        if !has_channel {
            self.channels.remove(&id);
        }
        EventSubscription(receiver)
    }

    /// Sends a message to all subscribers of a channel.
    pub(crate) fn publish(&self, channel: &[u8], format: MessageFormat, message: &Bytes) {
        match format {
            MessageFormat::EventStream => self.channels.publish(channel, || message.clone()),
            MessageFormat::Text => self.channels.publish(channel, || as_event(message)),
            // An event stream is UTF-8 text.
            MessageFormat::Binary => {}
        }
    }

    /// The number of subscriptions to channels.
    pub(crate) fn subscriptions(&self) -> usize {
        self.channels.subscriptions()
    }

    /// Ends all event streams.
    pub(crate) fn close(&self) {
        self.channels.clear();
    }
}

/// An event with this text: a `data` line for each of its lines. An event stream is UTF-8; invalid bytes are
/// replaced.
fn as_event(text: &[u8]) -> Bytes {
    let mut event = EventLines::default();
    event.data(&String::from_utf8_lossy(text));
    event.finish()
}

/// The events for one client, which end with the application.
#[derive(Debug)]
pub(crate) struct EventSubscription(mpsc::Receiver<Bytes>);

impl BodyStream for EventSubscription {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        self.0
            .poll_recv(cx)
            .map(|event| event.map(|event| Ok(Frame::Data(event))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::MAX_WAITING;

    fn next(subscription: &mut EventSubscription) -> Option<Bytes> {
        let polled = subscription.poll_frame(&mut Context::from_waker(std::task::Waker::noop()));
        match polled {
            Poll::Ready(Some(Ok(Frame::Data(bytes)))) => Some(bytes),
            _ => None,
        }
    }

    fn has_ended(subscription: &mut EventSubscription) -> bool {
        let polled = subscription.poll_frame(&mut Context::from_waker(std::task::Waker::noop()));
        matches!(polled, Poll::Ready(None))
    }

    #[test]
    fn subscribers_get_the_events_of_their_channels() {
        let hub = EventHub::default();
        let mut both = hub.subscribe([&b"a"[..], b"b"].into_iter());
        let mut one = hub.subscribe([&b"b"[..]].into_iter());
        hub.publish(b"a", MessageFormat::Text, &"first\nline\r\n".into());
        hub.publish(
            b"b",
            MessageFormat::EventStream,
            &"id: 1\ndata: x\n\n".into(),
        );
        hub.publish(b"c", MessageFormat::Text, &"nobody".into());
        hub.publish(b"b", MessageFormat::Binary, &"not text".into());
        assert_eq!(
            next(&mut both).unwrap(),
            "data: first\ndata: line\ndata: \n\n"
        );
        assert_eq!(next(&mut both).unwrap(), "id: 1\ndata: x\n\n");
        assert_eq!(next(&mut one).unwrap(), "id: 1\ndata: x\n\n");
        assert_eq!((next(&mut both), next(&mut one)), (None, None));
        assert_eq!(hub.subscriptions(), 3);
        drop(both);
        assert_eq!(hub.subscriptions(), 1);
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
    fn a_client_that_reads_too_slowly_is_disconnected() {
        let hub = EventHub::default();
        let mut slow = hub.subscribe([&b"a"[..]].into_iter());
        for _ in 0..=MAX_WAITING {
            hub.publish(b"a", MessageFormat::Text, &"x".into());
        }
        assert_eq!(hub.subscriptions(), 0);
        for _ in 0..MAX_WAITING {
            assert!(next(&mut slow).is_some());
        }
        assert!(has_ended(&mut slow));
    }

    #[test]
    fn a_subscription_without_channels_ends_at_once() {
        let hub = EventHub::default();
        assert!(has_ended(&mut hub.subscribe(std::iter::empty())));
    }
}
