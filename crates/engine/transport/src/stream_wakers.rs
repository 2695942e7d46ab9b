//! The wakers of the streams of a connection, with one bit for each stream.
//!
//! A wake-up costs the polling of one stream and not of all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Wake, Waker};

/// The wakers of a connection's streams. None is allocated before a stream has to wait.
#[derive(Default)]
pub struct StreamWakers {
    task: Option<Waker>,
    shared: Option<Arc<WokenStreams>>,
    slots: Vec<Option<Waker>>,
}

struct WokenStreams {
    task: Waker,
    any: AtomicBool,
    /// A bit for each slot. Slots past the last bit share the bits from the first on: a useless poll does no
    /// harm.
    bits: Box<[AtomicU64]>,
}

struct SlotWaker {
    shared: Arc<WokenStreams>,
    slot: usize,
}

impl StreamWakers {
    /// Registers the task to wake. If it differs from the last one, all waiting streams have to be polled,
    /// because they hold the wakers of that task.
    pub fn bind(&mut self, task: &Waker) {
        if self
            .task
            .as_ref()
            .is_some_and(|known| known.will_wake(task))
        {
            return;
        }
        self.task = Some(task.clone());
        if let Some(old) = self.shared.take() {
            let shared = WokenStreams::new(task.clone(), old.bits.len());
            for bits in &shared.bits {
                bits.store(u64::MAX, Ordering::Relaxed);
            }
            shared.any.store(true, Ordering::Relaxed);
            self.shared = Some(Arc::new(shared));
            self.slots.clear();
        }
    }

    /// The waker of a slot, which is less than `slots`.
    pub fn waker(&mut self, slot: usize, slots: usize) -> Waker {
        if let Some(Some(waker)) = self.slots.get(slot) {
            return waker.clone();
        }
        let waker = Waker::from(Arc::new(SlotWaker {
            shared: Arc::clone(self.shared(slots)),
            slot,
        }));
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        if let Some(known) = self.slots.get_mut(slot) {
            *known = Some(waker.clone());
        }
        waker
    }

    /// Marks a stream to be polled, without waking the task.
    pub fn mark(&mut self, slot: usize, slots: usize) {
        self.shared(slots).mark(slot);
    }

    /// Whether there are streams to be polled.
    pub fn is_any_woken(&self) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(|shared| shared.any.load(Ordering::Acquire))
    }

    /// Takes the slots below `slots` that have to be polled.
    pub fn take_woken(&self, slots: usize, woken: &mut Vec<usize>) {
        let Some(shared) = &self.shared else { return };
        // Before the bits are taken: a wake-up in between sets it again, and costs one useless look. In the other
        // order it would be lost.
        if !shared.any.swap(false, Ordering::AcqRel) {
            return;
        }
        let capacity = shared.bits.len() * 64;
        for (word, bits) in shared.bits.iter().enumerate() {
            // A load before the swap, which would take the cache line from threads that wake streams.
            if bits.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = bits.swap(0, Ordering::AcqRel);
            while bits != 0 {
                let first = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                woken.extend((first..slots).step_by(capacity));
            }
        }
    }

    /// Releases all memory, while no stream is open.
    pub fn shrink(&mut self) {
        self.shared = None;
        self.slots = Vec::new();
    }

    fn shared(&mut self, slots: usize) -> &Arc<WokenStreams> {
        let task = self.task.as_ref();
        self.shared.get_or_insert_with(|| {
            let task = task.map_or_else(|| Waker::noop().clone(), Waker::clone);
            Arc::new(WokenStreams::new(task, slots.div_ceil(64).max(1)))
        })
    }
}

impl WokenStreams {
    fn new(task: Waker, words: usize) -> Self {
        Self {
            task,
            any: AtomicBool::new(false),
            bits: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Sets the bit of a slot.
    fn mark(&self, slot: usize) {
        if let Some(bits) = self.bits.get((slot / 64) % self.bits.len()) {
            // The bit comes before `any`, and both before the task is woken: see `take_woken`.
            bits.fetch_or(1 << (slot % 64), Ordering::AcqRel);
            self.any.store(true, Ordering::Release);
        }
    }
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.shared.mark(self.slot);
        self.shared.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn woken(wakers: &StreamWakers, slots: usize) -> Vec<usize> {
        let mut woken = Vec::new();
        wakers.take_woken(slots, &mut woken);
        woken
    }

    #[test]
    fn wakes_the_task_and_names_the_streams_once() {
        let count = Arc::new(WakeCount::default());
        let mut wakers = StreamWakers::default();
        wakers.bind(&Waker::from(Arc::clone(&count)));
        let (three, hundred) = (wakers.waker(3, 256), wakers.waker(100, 256));
        assert_eq!(woken(&wakers, 256), []);
        three.wake_by_ref();
        three.wake_by_ref();
        hundred.wake_by_ref();
        assert_eq!(count.0.load(Ordering::Relaxed), 3);
        assert_eq!(woken(&wakers, 256), [3, 100]);
        assert_eq!(woken(&wakers, 256), []);
    }

    #[test]
    fn a_marked_stream_is_polled_without_waking_the_task() {
        let count = Arc::new(WakeCount::default());
        let mut wakers = StreamWakers::default();
        wakers.bind(&Waker::from(Arc::clone(&count)));
        wakers.mark(7, 100);
        assert!(wakers.is_any_woken());
        assert_eq!(woken(&wakers, 100), [7]);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        assert!(!wakers.is_any_woken());
    }

    #[test]
    fn one_waker_serves_all_streams_that_use_a_slot_one_after_another() {
        let mut wakers = StreamWakers::default();
        assert!(wakers.waker(1, 64).will_wake(&wakers.waker(1, 64)));
        assert!(!wakers.waker(1, 64).will_wake(&wakers.waker(2, 64)));
    }

    #[test]
    fn slots_past_the_last_bit_are_polled_with_those_whose_bit_they_share() {
        let mut wakers = StreamWakers::default();
        wakers.waker(70, 64).wake();
        assert_eq!(woken(&wakers, 72), [6, 70]);
    }

    #[test]
    fn a_change_of_the_task_has_all_streams_polled() {
        let (old, new) = (
            Arc::new(WakeCount::default()),
            Arc::new(WakeCount::default()),
        );
        let mut wakers = StreamWakers::default();
        wakers.bind(&Waker::from(Arc::clone(&old)));
        let stale = wakers.waker(2, 64);
        wakers.bind(&Waker::from(Arc::clone(&new)));
        assert_eq!(woken(&wakers, 5), [0, 1, 2, 3, 4]);
        wakers.waker(2, 64).wake();
        assert_eq!(new.0.load(Ordering::Relaxed), 1);
        assert_eq!(woken(&wakers, 5), [2]);
        stale.wake();
        assert_eq!(woken(&wakers, 5), []);
    }
}
