//! The end of the startup (section 4.3.2.2).

/// The growth of the bandwidth in a round trip while the pipe is not full.
const STARTUP_GROWTH: f64 = 1.25;
/// Round trips without this growth until the pipe is taken for full.
const STARTUP_ROUNDS: u32 = 3;
/// Packets that are lost in a round trip, and how many times as many bytes may be delivered in it, until the pipe is taken
/// for full.
const STARTUP_LOST_PACKETS: u64 = 10;
const STARTUP_LOSS: u64 = 5;

/// Whether the startup has reached the bandwidth of the path.
#[derive(Clone, Debug, Default)]
pub(super) struct PipeEstimate {
    pub(super) is_full: bool,
    bandwidth: u64,
    rounds_without_growth: u32,
    /// Bytes of this round.
    pub(super) delivered: u64,
    pub(super) lost: u64,
}

impl PipeEstimate {
    /// `bandwidth` is unknown if the application has sent less than it could.
    pub(super) fn on_round_end(&mut self, bandwidth: Option<u64>, mtu: u64) {
        // More than by chance: a queue overflows, even if the application does not fill the path all the time.
        self.is_full |=
            self.lost >= STARTUP_LOST_PACKETS * mtu && self.lost > self.delivered / STARTUP_LOSS;
        self.delivered = 0;
        self.lost = 0;
        let Some(bandwidth) = bandwidth else {
            return;
        };
        if bandwidth as f64 >= self.bandwidth as f64 * STARTUP_GROWTH {
            self.bandwidth = bandwidth;
            self.rounds_without_growth = 0;
            return;
        }
        self.rounds_without_growth += 1;
        self.is_full |= self.rounds_without_growth >= STARTUP_ROUNDS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u64 = 1_200;

    #[test]
    fn the_pipe_is_full_after_three_rounds_without_growth_by_a_quarter() {
        let mut pipe = PipeEstimate::default();
        for bandwidth in [1_000, 1_250, 1_562, 1_562, 1_563, 1_563, 1_953] {
            pipe.on_round_end(Some(bandwidth), MTU);
            assert!(!pipe.is_full);
        }
        for (bandwidth, is_full) in [(1_954, false), (2_441, false), (0, false), (2_442, true)] {
            pipe.on_round_end(Some(bandwidth), MTU);
            assert_eq!(pipe.is_full, is_full, "{bandwidth}");
        }
    }

    #[test]
    fn the_pipe_is_full_if_a_sixth_of_the_packets_is_lost() {
        for (lost, delivered, is_full) in [
            (9, 9, false),
            (10, 9, true),
            (10, 49, true),
            (10, 50, false),
            (10, 51, false),
            (11, 50, true),
            (0, 50, false),
        ] {
            let mut pipe = PipeEstimate {
                delivered: delivered * MTU,
                lost: lost * MTU,
                ..PipeEstimate::default()
            };
            pipe.on_round_end(None, MTU);
            assert_eq!(pipe.is_full, is_full, "{lost} {delivered}");
            assert_eq!((pipe.delivered, pipe.lost), (0, 0));
        }
    }
}
