//! ECN validation (RFC 9000 section 13.4.2, appendix A.4).

use std::time::{Duration, Instant};

/// Marked packets of a test.
// RFC 9000 appendix A.4 suggests ten packets or three probe timeouts.
const TEST_PACKETS: u64 = 10;
/// Probe timeouts that a test takes at most.
const TEST_TIMEOUTS: u32 = 3;

/// The counts of an ACK frame of type 0x03 (RFC 9000 section 19.3.2): packets of one packet number space that its sender
/// has received, by their mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EcnCounts {
    pub(crate) ect0: u64,
    pub(crate) ect1: u64,
    pub(crate) ce: u64,
}

/// Whether packets of a path are sent as ECT(0): some for a test, and all once the peer reports their marks.
#[derive(Clone, Debug)]
pub(crate) struct EcnValidation {
    state: EcnState,
    /// For each packet number space, those that were sent as ECT(0) over all paths of the connection.
    sent: [u64; 3],
    /// For each packet number space, the last counts of the peer.
    reported: [EcnCounts; 3],
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum EcnState {
    /// Packets are marked for a test, which began with the first of them.
    Testing {
        start: Option<Instant>,
        sent: u64,
        lost: u64,
    },
    /// The test waits for ACKs of its packets.
    Unknown {
        sent: u64,
        lost: u64,
    },
    Capable,
    Failed,
}

const TEST: EcnState = EcnState::Testing {
    start: None,
    sent: 0,
    lost: 0,
};

impl EcnValidation {
    /// A path whose first packets are marked for a test.
    pub(crate) fn new() -> Self {
        Self::with_state(TEST)
    }

    fn with_state(state: EcnState) -> Self {
        Self {
            state,
            sent: [0; 3],
            reported: [EcnCounts::default(); 3],
        }
    }

    /// The validation of another path of the same connection: a new test, which begins at the present counts.
    pub(crate) fn for_new_path(&self) -> Self {
        Self {
            state: TEST,
            ..self.clone()
        }
    }

    /// Whether the next packets are to be sent as ECT(0). `pto` is the probe timeout without backoff.
    pub(crate) fn is_marking(&mut self, now: Instant, pto: Duration) -> bool {
        match self.state {
            EcnState::Testing { start, sent, lost } => {
                // Marking stops until the peer has reported: a path that drops marked packets loses the ten of the
                // test and no more.
                let is_over = sent >= TEST_PACKETS
                    || start.is_some_and(|start| {
                        now.saturating_duration_since(start) >= pto.saturating_mul(TEST_TIMEOUTS)
                    });
                if is_over {
                    self.state = EcnState::Unknown { sent, lost };
                    self.fail_if_all_are_lost();
                }
                !is_over
            }
            EcnState::Capable => true,
            EcnState::Unknown { .. } | EcnState::Failed => false,
        }
    }

    /// So many packets of a space were sent as ECT(0). Spaces are 0 (Initial), 1 (Handshake) and 2 (Application Data).
    pub(crate) fn on_sent(&mut self, now: Instant, space: usize, packets: u64) {
        if let Some(sent) = self.sent.get_mut(space) {
            *sent = sent.saturating_add(packets);
        }
        if let EcnState::Testing { start, sent, .. } = &mut self.state {
            start.get_or_insert(now);
            *sent = sent.saturating_add(packets);
        }
    }

    /// An ACK frame has increased the largest acknowledged packet number of a space. Of the packets that it newly
    /// acknowledges, `newly_acked` were sent as ECT(0). Returns whether packets were marked by the path as a sign of
    /// congestion, to which the sender reacts as to lost packets.
    pub(crate) fn on_ack(
        &mut self,
        space: usize,
        newly_acked: u64,
        counts: Option<EcnCounts>,
    ) -> bool {
        let (Some(&sent), Some(reported)) = (self.sent.get(space), self.reported.get_mut(space))
        else {
            return false;
        };
        let Some(counts) = counts else {
            // The peer, or the path, takes the marks away.
            if newly_acked > 0 {
                self.state = EcnState::Failed;
            }
            return false;
        };
        let before = std::mem::replace(reported, counts);
        if self.state == EcnState::Failed {
            return false;
        }
        let (Some(ect0), Some(ce)) = (
            counts.ect0.checked_sub(before.ect0),
            counts.ce.checked_sub(before.ce),
        ) else {
            self.state = EcnState::Failed;
            return false;
        };
        // Counts that are too low mean that a router clears marks, and ECT(1), which this end never sends, that one
        // rewrites them. Then CE could be missing, too, and this end would not see congestion (RFC 9000 section
        // 13.4.2.1).
        if ect0.saturating_add(ce) < newly_acked || counts.ect0 > sent || counts.ect1 > 0 {
            self.state = EcnState::Failed;
            return false;
        }
        if newly_acked > 0 {
            self.state = EcnState::Capable;
        }
        ce > 0
    }

    /// So many packets that were sent as ECT(0) over this path are lost. If these are all of a test, the path may discard
    /// marked packets.
    pub(crate) fn on_lost(&mut self, packets: u64) {
        if let EcnState::Testing { lost, .. } | EcnState::Unknown { lost, .. } = &mut self.state {
            *lost = lost.saturating_add(packets);
            self.fail_if_all_are_lost();
        }
    }

    fn fail_if_all_are_lost(&mut self) {
        if let EcnState::Unknown { sent, lost } = self.state
            && lost >= sent
        {
            self.state = EcnState::Failed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTO: Duration = Duration::from_millis(100);

    fn counts(ect0: u64, ect1: u64, ce: u64) -> Option<EcnCounts> {
        Some(EcnCounts { ect0, ect1, ce })
    }

    /// A path whose test has sent all its packets.
    fn tested(now: Instant) -> EcnValidation {
        let mut ecn = EcnValidation::new();
        assert!(ecn.is_marking(now, PTO));
        ecn.on_sent(now, 2, TEST_PACKETS);
        assert!(!ecn.is_marking(now, PTO));
        ecn
    }

    fn capable(now: Instant) -> EcnValidation {
        let mut ecn = tested(now);
        assert!(!ecn.on_ack(2, 10, counts(10, 0, 0)));
        assert!(ecn.is_marking(now, PTO));
        ecn
    }

    #[test]
    fn a_test_marks_ten_packets() {
        let now = Instant::now();
        for (sent, is_marking) in [(9, true), (10, false), (11, false)] {
            let mut ecn = EcnValidation::new();
            ecn.on_sent(now, 0, sent);
            assert_eq!(ecn.is_marking(now, PTO), is_marking);
        }
    }

    #[test]
    fn a_test_takes_three_probe_timeouts_from_its_first_packet() {
        let now = Instant::now();
        for (milliseconds, is_marking) in [(299, true), (300, false), (301, false)] {
            let mut ecn = EcnValidation::new();
            assert!(ecn.is_marking(now, PTO));
            let first = now + Duration::from_secs(9);
            ecn.on_sent(first, 0, 1);
            ecn.on_sent(first + PTO, 0, 1);
            let later = first + Duration::from_millis(milliseconds);
            assert_eq!(ecn.is_marking(later, PTO), is_marking);
        }
    }

    #[test]
    fn reported_marks_pass_the_test() {
        let now = Instant::now();
        for (acked, reported, is_capable) in [
            (0, counts(0, 0, 0), false),
            (1, counts(0, 0, 0), false),
            (1, counts(1, 0, 0), true),
            (1, counts(2, 0, 0), true),
            (3, counts(2, 0, 0), false),
            (3, counts(2, 0, 1), true),
            (10, counts(10, 0, 0), true),
            (10, counts(11, 0, 0), false),
            (10, counts(10, 1, 0), false),
            (1, None, false),
            (0, None, false),
        ] {
            let mut ecn = tested(now);
            ecn.on_ack(2, acked, reported);
            assert_eq!(ecn.is_marking(now, PTO), is_capable, "{acked} {reported:?}");
        }
    }

    #[test]
    fn an_ack_of_unmarked_packets_decides_nothing() {
        let now = Instant::now();
        let mut ecn = tested(now);
        ecn.on_ack(2, 0, None);
        ecn.on_ack(2, 5, counts(5, 0, 0));
        assert!(ecn.is_marking(now, PTO));
    }

    #[test]
    fn a_new_mark_of_congestion_is_reported_once() {
        let mut ecn = capable(Instant::now());
        assert!(!ecn.on_ack(2, 0, counts(10, 0, 0)));
        assert!(ecn.on_ack(2, 0, counts(10, 0, 1)));
        assert!(!ecn.on_ack(2, 0, counts(10, 0, 1)));
        assert!(ecn.on_ack(2, 0, counts(10, 0, 3)));
    }

    #[test]
    fn spaces_are_counted_apart() {
        let now = Instant::now();
        let mut ecn = EcnValidation::new();
        ecn.on_sent(now, 0, 1);
        ecn.on_sent(now, 1, 2);
        ecn.on_ack(0, 1, counts(1, 0, 0));
        assert!(!ecn.on_ack(1, 2, counts(2, 0, 0)));
        assert_eq!(ecn.state, EcnState::Capable);
        ecn.on_ack(0, 0, counts(2, 0, 0));
        assert_eq!(ecn.state, EcnState::Failed);
    }

    #[test]
    fn a_capable_path_fails_later() {
        let now = Instant::now();
        for (acked, reported) in [
            (0, counts(9, 0, 1)),
            (0, counts(11, 0, 0)),
            (1, counts(10, 0, 0)),
            (1, None),
        ] {
            let mut ecn = capable(now);
            assert!(!ecn.on_ack(2, acked, reported));
            assert!(!ecn.is_marking(now, PTO), "{reported:?}");
            assert!(!ecn.on_ack(2, 0, counts(10, 0, 9)));
        }
    }

    #[test]
    fn a_path_that_discards_all_marked_packets_fails() {
        let now = Instant::now();
        for (lost, has_failed) in [(9, false), (10, true), (11, true)] {
            let mut ecn = tested(now);
            ecn.on_lost(lost);
            assert_eq!(ecn.state == EcnState::Failed, has_failed);
        }
        let mut ecn = EcnValidation::new();
        ecn.on_sent(now, 0, 1);
        ecn.on_lost(1);
        assert!(ecn.is_marking(now, PTO));
        assert!(!ecn.is_marking(now + 3 * PTO, PTO));
        assert_eq!(ecn.state, EcnState::Failed);
    }

    #[test]
    fn a_new_path_is_tested_from_the_counts_so_far() {
        let now = Instant::now();
        let mut ecn = capable(now).for_new_path();
        assert!(ecn.is_marking(now, PTO));
        ecn.on_sent(now, 2, 1);
        ecn.on_ack(2, 1, counts(11, 0, 0));
        assert_eq!(ecn.state, EcnState::Capable);
    }

    #[test]
    fn unknown_spaces_and_the_largest_counts_are_harmless() {
        let now = Instant::now();
        let mut ecn = EcnValidation::new();
        ecn.on_sent(now, 3, u64::MAX);
        ecn.on_sent(now, 0, u64::MAX);
        assert!(!ecn.on_ack(3, 1, counts(1, 0, 1)));
        assert!(ecn.on_ack(0, 1, counts(u64::MAX, 0, u64::MAX)));
    }
}
