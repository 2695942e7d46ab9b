//! Which tickets were used, in a table of a fixed size that workers share without a lock.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::token::TICKET_LIFETIME;

/// The tickets that it remembers at most.
const SLOTS: usize = 1 << 15;

/// The slots that one ticket may take.
const PROBES: usize = 8;

/// The used tickets of the last two minutes. A flood of more than it can hold makes it forget the oldest: the client of such a ticket,
/// and no other, could then use it twice until it expires.
#[derive(Default)]
pub(super) struct SpentTickets(OnceLock<Box<[AtomicU64]>>);

impl SpentTickets {
    /// Notes that a ticket is used; false if it was used before. Times are in milliseconds since 1970.
    pub(super) fn spend(&self, id: u64, issued: u64, now: u64) -> bool {
        let slots = self
            .0
            .get_or_init(|| (0..SLOTS).map(|_| AtomicU64::new(0)).collect());
        // A slot has the high half of the number, and the second in which the ticket was issued.
        let mark = id >> 32;
        let entry = (mark << 32) | ((issued / 1000) & u64::from(u32::MAX)).max(1);
        let is_old = |slot: u64| {
            let issued = (slot & u64::from(u32::MAX)).saturating_mul(1000);
            issued.saturating_add(TICKET_LIFETIME).saturating_add(1000) < now
        };
        let first = usize::try_from(id & u64::from(u32::MAX)).unwrap_or(0);
        let own = |probe: usize| slots.get(first.wrapping_add(probe) % SLOTS);
        loop {
            let mut free: Option<(&AtomicU64, u64)> = None;
            for slot in (0..PROBES).filter_map(own) {
                let value = slot.load(Ordering::Acquire);
                if value == entry {
                    return false;
                }
                let age = |value: u64| {
                    if is_old(value) {
                        0
                    } else {
                        value & u64::from(u32::MAX)
                    }
                };
                if free.is_none_or(|(_, other)| age(value) < age(other)) {
                    free = Some((slot, value));
                }
            }
            let Some((slot, value)) = free else {
                return false;
            };
            let set = slot.compare_exchange(value, entry, Ordering::AcqRel, Ordering::Acquire);
            if set.is_ok() {
                return true;
            }
        }
    }
}

impl fmt::Debug for SpentTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpentTickets").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    #[test]
    fn a_ticket_is_used_once_also_by_several_threads() {
        let spent = SpentTickets::default();
        let ids: Vec<u64> = (1..500_u64)
            .map(|id| id.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .collect();
        let used: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| ids.iter().filter(|id| spent.spend(**id, NOW, NOW)).count())
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(used, ids.len());
    }

    #[test]
    fn the_oldest_tickets_make_room_and_expired_ones_first() {
        let spent = SpentTickets::default();
        // They all begin at the same slot.
        let id = |number: u64| number << 32;
        for number in 1..=8 {
            assert!(spent.spend(id(number), NOW + number * 1000, NOW));
        }
        assert!((1..=8).all(|number| !spent.spend(id(number), NOW + number * 1000, NOW)));
        assert!(spent.spend(id(9), NOW + 9000, NOW));
        assert!((2..=9).all(|number| !spent.spend(id(number), NOW + number * 1000, NOW)));
        let later = NOW + 10_000 + TICKET_LIFETIME + 1000;
        assert!(spent.spend(id(10), later, later));
        assert!(!spent.spend(id(10), later, later));
    }
}
