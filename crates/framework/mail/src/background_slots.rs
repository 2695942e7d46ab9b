//! The places of the mails that wait or are on their way: a bounded number.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many mails may wait or be on their way.
const WAITING: usize = 1000;

/// Counts the mails that are on their way.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackgroundMails(Arc<AtomicUsize>);

/// The place of one mail.
pub(crate) struct BackgroundSlot(Arc<AtomicUsize>);

impl BackgroundMails {
    /// A place for one more mail, unless all are taken.
    pub(crate) fn slot(&self) -> Option<BackgroundSlot> {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let slot = BackgroundSlot(self.0.clone());
        (before < WAITING).then_some(slot)
    }
}

impl Drop for BackgroundSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
