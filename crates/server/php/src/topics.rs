//! Topics with subscribers on any thread, each with a bounded queue of messages.
//!
//! This is not the table of the rooms of WebSocket: rooms are entered by sockets of Rust, which stay on their worker, so that each worker
//! has a table without a lock and a message is compressed once for all of them. A PHP worker names a subscriber by an id that
//! any thread may get, also after the subscriber has gone, which needs one table for the process, ids that are never used again, and a lock.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;

/// The number of messages that may wait for one subscriber. A slower one is removed, which ends its queue.
pub(crate) const MAX_WAITING: usize = 256;

/// Topics and their subscribers. `M` is a message, `D` is data of a subscriber.
#[derive(Debug)]
pub(crate) struct Topics<M, D = ()> {
    table: Mutex<TopicTable<M, D>>,
}

#[derive(Debug)]
struct TopicTable<M, D> {
    subscribers: HashMap<Bytes, Subscriber<M, D>>,
    /// The ids of the subscribers of each topic.
    topics: HashMap<Bytes, HashSet<Bytes>>,
    last_id: u64,
}

#[derive(Debug)]
struct Subscriber<M, D> {
    queue: mpsc::Sender<M>,
    topics: HashSet<Bytes>,
    data: D,
}

impl<M, D> Default for Topics<M, D> {
    fn default() -> Self {
        Self {
            table: Mutex::new(TopicTable {
                subscribers: HashMap::new(),
                topics: HashMap::new(),
                last_id: 0,
            }),
        }
    }
}

impl<M: Clone, D> Topics<M, D> {
    fn table(&self) -> MutexGuard<'_, TopicTable<M, D>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a subscriber without topics. Its id is unique over time.
    pub(crate) fn add(&self, data: D) -> (Bytes, mpsc::Receiver<M>) {
        let (queue, receiver) = mpsc::channel(MAX_WAITING);
        let mut table = self.table();
        table.last_id += 1;
        let id = Bytes::from(format!("s{}", table.last_id));
        let subscriber = Subscriber {
            queue,
            topics: HashSet::new(),
            data,
        };
        table.subscribers.insert(id.clone(), subscriber);
        (id, receiver)
    }

    /// Removes a subscriber.
    pub(crate) fn remove(&self, id: &[u8]) {
        self.table().remove(id);
    }

    /// Removes all subscribers.
    pub(crate) fn clear(&self) {
        let mut table = self.table();
        table.subscribers.clear();
        table.topics.clear();
    }

    /// Subscribes to a topic, if there is a subscriber with this id.
    pub(crate) fn join(&self, topic: Bytes, id: Bytes) {
        let mut table = self.table();
        if let Some(subscriber) = table.subscribers.get_mut(&id) {
            subscriber.topics.insert(topic.clone());
            table.topics.entry(topic).or_default().insert(id);
        }
    }

    /// Ends the subscription to a topic.
    pub(crate) fn leave(&self, topic: &[u8], id: &[u8]) {
        let mut table = self.table();
        if let Some(subscriber) = table.subscribers.get_mut(id) {
            subscriber.topics.remove(topic);
        }
        table.remove_from_topic(topic, id);
    }

    /// Sends a message, which is made if there are any, to all subscribers of a topic.
    pub(crate) fn publish(&self, topic: &[u8], message: impl FnOnce() -> M) {
        let mut table = self.table();
        let Some(ids) = table.topics.get(topic) else {
            return;
        };
        let message = message();
        let is_failed = |id: &&Bytes| {
            let subscriber = table.subscribers.get(*id);
            subscriber.is_none_or(|one| one.queue.try_send(message.clone()).is_err())
        };
        let failed: Vec<Bytes> = ids.iter().filter(is_failed).cloned().collect();
        for id in failed {
            table.remove(&id);
        }
    }

    /// Sends a message to one subscriber, if it exists.
    pub(crate) fn send(&self, id: &[u8], message: M) {
        let mut table = self.table();
        let subscriber = table.subscribers.get(id);
        if subscriber.is_some_and(|one| one.queue.try_send(message).is_err()) {
            table.remove(id);
        }
    }

    /// Calls `access` with the data of a subscriber, if it exists.
    pub(crate) fn with_data<R>(&self, id: &[u8], access: impl FnOnce(&mut D) -> R) -> Option<R> {
        let mut table = self.table();
        let subscriber = table.subscribers.get_mut(id)?;
        Some(access(&mut subscriber.data))
    }

    /// The number of subscribers.
    pub(crate) fn len(&self) -> usize {
        self.table().subscribers.len()
    }

    /// The number of subscriptions, a subscriber counting once for each of its topics. Removes subscribers
    /// whose receiver was dropped.
    pub(crate) fn subscriptions(&self) -> usize {
        let mut table = self.table();
        let subscribers = table.subscribers.iter();
        let closed: Vec<Bytes> = subscribers
            .filter(|(_, subscriber)| subscriber.queue.is_closed())
            .map(|(id, _)| id.clone())
            .collect();
        for id in closed {
            table.remove(&id);
        }
        table.topics.values().map(HashSet::len).sum()
    }
}

impl<M, D> TopicTable<M, D> {
    fn remove(&mut self, id: &[u8]) {
        if let Some(subscriber) = self.subscribers.remove(id) {
            for topic in &subscriber.topics {
                self.remove_from_topic(topic, id);
            }
        }
    }

    /// Removes a subscriber from a topic, and the topic with its last subscriber.
    fn remove_from_topic(&mut self, topic: &[u8], id: &[u8]) {
        if let Some(ids) = self.topics.get_mut(topic) {
            ids.remove(id);
            if ids.is_empty() {
                self.topics.remove(topic);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reaches_the_subscribers_of_its_topic() {
        let topics = Topics::default();
        let ((one, mut first), (two, mut second)) = (topics.add(()), topics.add(()));
        assert_ne!(one, two);
        topics.join("a".into(), one.clone());
        topics.join("a".into(), two.clone());
        topics.join("a".into(), "unknown".into());
        topics.leave(b"a", &two);
        topics.publish(b"a", || 'x');
        topics.publish(b"b", || 'y');
        assert_eq!(
            (first.try_recv(), first.try_recv().is_err()),
            (Ok('x'), true)
        );
        assert!(second.try_recv().is_err());
    }

    #[test]
    fn a_topic_ends_with_its_last_subscriber() {
        let topics = Topics::<()>::default();
        let ((one, _first), (two, second)) = (topics.add(()), topics.add(()));
        topics.join("a".into(), one.clone());
        topics.join("b".into(), two);
        assert_eq!(topics.subscriptions(), 2);
        topics.remove(&one);
        assert!(!topics.table().topics.contains_key(&b"a"[..]));
        drop(second);
        assert_eq!(topics.subscriptions(), 0);
        assert!(topics.table().topics.is_empty() && topics.len() == 0);
    }

    #[test]
    fn a_slow_subscriber_is_removed_from_all_its_topics() {
        let topics = Topics::default();
        let (id, mut receiver) = topics.add(());
        topics.join("a".into(), id.clone());
        topics.join("b".into(), id);
        for _ in 0..=MAX_WAITING {
            topics.publish(b"a", || 'x');
        }
        assert_eq!((topics.len(), topics.subscriptions()), (0, 0));
        for _ in 0..MAX_WAITING {
            assert_eq!(receiver.try_recv(), Ok('x'));
        }
        assert_eq!(
            receiver.try_recv(),
            Err(mpsc::error::TryRecvError::Disconnected)
        );
    }
}
