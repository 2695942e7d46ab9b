//! The steps of the history, and where each time has its slot.

/// How long one record is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryStep {
    /// A second; two hours of them are kept.
    Second,
    /// A minute; two days.
    Minute,
    /// An hour; 366 days.
    Hour,
}

impl HistoryStep {
    /// All steps, the shortest first.
    pub const ALL: [Self; 3] = [Self::Second, Self::Minute, Self::Hour];

    /// The step with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
        }
    }

    /// Its length in seconds.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
        }
    }

    /// How many records are kept.
    pub const fn slots(self) -> u64 {
        match self {
            Self::Second => 2 * 3600,
            Self::Minute => 48 * 60,
            Self::Hour => 366 * 24,
        }
    }

    /// When the step of a time begins.
    pub const fn begin(self, time: u64) -> u64 {
        time - time % self.seconds()
    }

    /// The slot of a time, among those of all steps.
    pub(super) const fn slot(self, time: u64) -> u64 {
        let before = match self {
            Self::Second => 0,
            Self::Minute => Self::Second.slots(),
            Self::Hour => Self::Second.slots() + Self::Minute.slots(),
        };
        before + time / self.seconds() % self.slots()
    }
}

/// The slots of all steps.
pub(super) const ALL_SLOTS: u64 =
    HistoryStep::Second.slots() + HistoryStep::Minute.slots() + HistoryStep::Hour.slots();

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Two times of one step have one slot, and two that are kept at once have not.
        #[test]
        fn each_kept_time_has_a_slot_of_its_own(time in 0..1_u64 << 40, later in 1..10_000_u64, within in 0..3600_u64) {
            for step in HistoryStep::ALL {
                let begin = step.begin(time);
                prop_assert!(begin <= time && time - begin < step.seconds() && begin % step.seconds() == 0);
                prop_assert_eq!(step.slot(begin), step.slot(begin + within % step.seconds()));
                let other = step.slot(time + later * step.seconds());
                prop_assert_eq!(step.slot(time) == other, later % step.slots() == 0);
                let first = step.slot(0);
                for slot in [step.slot(time), other] {
                    prop_assert!(slot >= first && slot < first + step.slots() && slot < ALL_SLOTS);
                }
            }
        }
    }

    #[test]
    fn steps_have_slots_of_their_own() {
        let first: Vec<_> = HistoryStep::ALL.map(|step| step.slot(0)).to_vec();
        assert_eq!(first, [0, 7200, 7200 + 2880]);
        assert_eq!(ALL_SLOTS, 7200 + 2880 + 8784);
        for step in HistoryStep::ALL {
            assert_eq!(HistoryStep::named(step.name()), Some(step));
        }
        assert_eq!(HistoryStep::named("day"), None);
    }
}
