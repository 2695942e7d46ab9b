//! How many requests a FastCGI application serves at once, learnt from what happens to its connections.

use std::time::{Duration, Instant};

/// The limit of concurrent requests to an application.
///
/// Each process of most applications serves one connection at a time, and keeps it when it is idle. A request
/// over a further connection waits until one of them is closed, but whether an application has processes left
/// can only be tried. So there is no limit until a new connection *starves*: the application has not read its
/// request, while responses came over others. Over TCP it is not known what the application has read; there a
/// connection starves if it was overtaken by many responses. What is
/// served then is the limit. While there is a limit, it is probed with one request more from time to time, and
/// with twice as many each time that they are served.
///
/// A connection that starves is owed the process of another: the next one that returns is closed.
#[derive(Debug)]
pub(super) struct ConcurrencyLimit {
    /// Requests that were admitted and have not ended.
    in_flight: usize,
    /// Those over a connection that the application serves.
    served: usize,
    /// Requests over a new connection that starves.
    starving: usize,
    /// How many of them the application certainly has not read.
    unread: usize,
    /// Connections to close for those that starve.
    owed: usize,
    /// The limit; `usize::MAX` while there is none.
    limit: usize,
    /// How many more requests a probe admits.
    step: usize,
    /// When the limit is probed again.
    probe_at: Option<Instant>,
    probe_delay: Duration,
    /// Connections that returned after a response.
    returned: u64,
    /// Whether the application closes its connections after each response, so that none blocks a process.
    is_closing: bool,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestProgress {
    stage: RequestStage,
    /// Connections that had returned when the request opened its own.
    returned_before: u64,
    /// Whether the limit was known then.
    is_limited: bool,
    /// Whether the limit considers that its connection starves.
    is_considered: bool,
}

/// The wait of a request for its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseSilence {
    /// Whether the application certainly has not read the request.
    pub(super) is_unread: bool,
    /// The time since the request was sent.
    pub(super) waited: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RequestStage {
    /// Not known to be served.
    #[default]
    Opening,
    Served,
    Starving {
        unread: bool,
    },
}

/// The time without a response after which it is checked whether a new connection starves.
// A process that is free has read the request long before. A longer time would be one in which clients wait for
// nothing.
const PATIENCE: Duration = Duration::from_millis(5);

/// The time after which a new connection starves if it is not known whether its request was read, or if it
/// replaces another: the application may be starting a process.
pub(super) const LONG_PATIENCE: Duration = Duration::from_millis(40);

/// The number of responses that have to overtake a request of which it is not known whether it was read: this number
/// for each request that is served, and at least the other one.
// One slow script is overtaken by many fast ones without any starving, so a few responses prove nothing.
const ROUNDS: usize = 4;
const MIN_OVERTAKEN: usize = 32;

const MIN_PROBE_DELAY: Duration = Duration::from_millis(100);
// A probe that fails makes one request wait, so probes become rare while the number of processes stays; a pool that
// grows is noticed within this time.
const MAX_PROBE_DELAY: Duration = Duration::from_secs(3);
const MAX_STEP: usize = 64;

/// The time after which a limit is forgotten that was not probed, because there were too few requests.
const MAX_AGE: Duration = Duration::from_secs(10);

impl Default for ConcurrencyLimit {
    fn default() -> Self {
        Self {
            in_flight: 0,
            served: 0,
            starving: 0,
            unread: 0,
            owed: 0,
            limit: usize::MAX,
            step: 1,
            probe_at: None,
            probe_delay: MIN_PROBE_DELAY,
            returned: 0,
            is_closing: false,
        }
    }
}

impl ConcurrencyLimit {
    /// Whether one more request is within the limit, or probes it.
    pub(super) fn admits(&self, now: Instant) -> bool {
        self.in_flight < self.limit
            || (self.is_probing(now) && self.in_flight < self.limit.saturating_add(self.step))
    }

    fn is_probing(&self, now: Instant) -> bool {
        self.probe_at.is_none_or(|at| now >= at)
    }

    /// Begins a request.
    pub(super) fn begin(&mut self, now: Instant) -> RequestProgress {
        if self.in_flight == 0 && self.limit < usize::MAX {
            // The application may have been configured anew since, or run on another number of processes; only a
            // request can find out.
            self.forget_old_limit(now);
        }
        self.in_flight += 1;
        RequestProgress::default()
    }

    /// Ends a request.
    pub(super) fn end(&mut self, request: &mut RequestProgress) {
        self.set_stage(request, RequestStage::Opening);
        self.in_flight -= 1;
    }

    /// A request opens a connection. Returns after which time it has to be checked whether it starves.
    pub(super) fn open(&mut self, request: &mut RequestProgress) -> Duration {
        self.set_stage(request, RequestStage::Opening);
        *request = RequestProgress {
            returned_before: self.returned,
            is_limited: self.limit < usize::MAX,
            ..RequestProgress::default()
        };
        if request.is_limited && self.in_flight <= self.limit {
            LONG_PATIENCE
        } else {
            PATIENCE
        }
    }

    /// The application serves a request: it has read it, or its connection had a response before.
    pub(super) fn serve(&mut self, request: &mut RequestProgress, now: Instant) {
        self.set_stage(request, RequestStage::Served);
        if self.served > self.limit {
            self.limit = self.served;
            if self.is_probing(now) {
                self.step = (self.step * 2).min(MAX_STEP);
                self.probe_delay = MIN_PROBE_DELAY;
            }
        }
    }

    /// A request over a new connection has had no response for a while. `idle` is the number of idle connections.
    pub(super) fn starve(
        &mut self,
        request: &mut RequestProgress,
        silence: ResponseSilence,
        idle: usize,
        now: Instant,
    ) {
        let ResponseSilence { is_unread, waited } = silence;
        let is_new = !matches!(request.stage, RequestStage::Starving { .. });
        self.set_stage(request, RequestStage::Starving { unread: is_unread });
        // After a long time another connection may have got the process.
        if is_new || waited >= LONG_PATIENCE {
            self.owed = (self.owed + 1).min(self.starving);
        }
        let overtaken_by = self.returned - request.returned_before;
        if !is_unread && overtaken_by == 0 && self.in_flight > self.limit {
            // Nothing returns, and the application may well serve it.
            self.limit = usize::MAX;
        }
        let is_overtaken = if is_unread {
            overtaken_by > 0
        } else {
            overtaken_by >= (self.served * ROUNDS).max(MIN_OVERTAKEN) as u64
        };
        if !is_overtaken || request.is_considered {
            return;
        }
        request.is_considered = true;
        let is_probe = self.in_flight > self.limit;
        if self.limit == usize::MAX {
            self.set_limit(idle, now);
        // Connections from before there was a limit say nothing about it.
        } else if request.is_limited && (is_probe || is_unread) {
            if !is_probe {
                self.probe_delay = MIN_PROBE_DELAY;
            }
            let served = self.in_flight - self.starving + idle;
            self.limit = served.clamp(1, self.limit);
            self.delay_probe(now);
        }
    }

    /// A connection returns after a response. Returns whether it has to be closed for one that starves.
    pub(super) fn return_connection(&mut self, idle: usize, now: Instant) -> bool {
        self.returned += 1;
        match self.limit {
            _ if self.unread == 0 => {}
            usize::MAX => self.set_limit(idle, now),
            // The one that starves is a probe.
            limit if self.in_flight > limit => self.delay_probe(now),
            _ => {}
        }
        self.take_owed()
    }

    /// Whether any request may still take an idle connection.
    pub(super) fn is_opening(&self) -> bool {
        self.in_flight > self.served + self.starving
    }

    /// Whether a connection has to be closed for one that starves. The next call is for another one.
    pub(super) fn take_owed(&mut self) -> bool {
        let is_owed = self.owed > 0;
        self.owed -= usize::from(is_owed);
        is_owed
    }

    /// An idle connection could be used again, or was found closed after its first response.
    pub(super) fn set_closing(&mut self, is_closing: bool) {
        self.is_closing = is_closing;
        if is_closing {
            self.limit = usize::MAX;
        }
    }

    fn set_limit(&mut self, idle: usize, now: Instant) {
        if !self.is_closing {
            self.limit = (self.served + idle).max(1);
            self.probe_delay = MIN_PROBE_DELAY;
            self.probe_at = None;
            self.delay_probe(now);
        }
    }

    /// Forgets a limit that nothing has confirmed for long.
    fn forget_old_limit(&mut self, now: Instant) {
        let age = self.probe_at.map(|at| now.saturating_duration_since(at));
        if age.is_some_and(|age| age > MAX_AGE) {
            self.limit = usize::MAX;
        }
    }

    fn delay_probe(&mut self, now: Instant) {
        self.step = 1;
        if self.is_probing(now) {
            self.probe_at = now.checked_add(self.probe_delay);
            self.probe_delay = (self.probe_delay * 2).min(MAX_PROBE_DELAY);
        }
    }

    fn set_stage(&mut self, request: &mut RequestProgress, stage: RequestStage) {
        self.count(request.stage, |count| *count -= 1);
        self.count(stage, |count| *count += 1);
        self.owed = self.owed.min(self.starving);
        request.stage = stage;
    }

    fn count(&mut self, stage: RequestStage, change: impl Fn(&mut usize)) {
        match stage {
            RequestStage::Opening => {}
            RequestStage::Served => change(&mut self.served),
            RequestStage::Starving { unread } => {
                change(&mut self.starving);
                if unread {
                    change(&mut self.unread);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Requests to an application that serves some connections at once, and keeps them.
    struct Requests {
        limit: ConcurrencyLimit,
        open: Vec<RequestProgress>,
        now: Instant,
    }

    impl Requests {
        fn new() -> Self {
            Self {
                limit: ConcurrencyLimit::default(),
                open: Vec::new(),
                now: Instant::now(),
            }
        }

        /// Begins this many requests over new connections, of which the first ones are served.
        fn begin(&mut self, count: usize, served: usize) {
            for number in 0..count {
                let mut request = self.limit.begin(self.now);
                self.limit.open(&mut request);
                if number < served {
                    self.limit.serve(&mut request, self.now);
                }
                self.open.push(request);
            }
        }

        fn finish_first(&mut self) -> bool {
            self.finish(0)
        }

        /// Ends a request with a response. Returns whether its connection is closed.
        fn finish(&mut self, index: usize) -> bool {
            let mut request = self.open.remove(index);
            self.limit.serve(&mut request, self.now);
            let is_closed = self.limit.return_connection(0, self.now);
            self.limit.end(&mut request);
            is_closed
        }

        fn starve(&mut self, index: usize) {
            let request = &mut self.open[index];
            self.limit.starve(request, UNREAD, 0, self.now);
        }

        fn serve(&mut self, index: usize) {
            self.limit.serve(&mut self.open[index], self.now);
        }

        /// Begins requests as long as they are admitted, each served at once. Returns how many are in flight.
        fn fill(&mut self) -> usize {
            while self.limit.admits(self.now) && self.open.len() < 1000 {
                self.begin(1, 1);
            }
            self.open.len()
        }

        fn pass(&mut self, time: Duration) {
            self.now += time;
        }
    }

    const UNREAD: ResponseSilence = ResponseSilence {
        is_unread: true,
        waited: PATIENCE,
    };

    const UNKNOWN: ResponseSilence = ResponseSilence {
        is_unread: false,
        waited: LONG_PATIENCE,
    };

    /// Five requests are served, a sixth starves, and one of the five gets its response.
    fn limited_to_five() -> Requests {
        let mut requests = Requests::new();
        requests.begin(6, 5);
        requests.starve(5);
        assert!(requests.limit.admits(requests.now), "nothing returned yet");
        assert!(requests.finish_first(), "the one that starves needs it");
        requests.serve(4);
        assert_eq!(requests.limit.limit, 5);
        requests
    }

    #[test]
    fn has_no_limit_while_nothing_starves() {
        let mut requests = Requests::new();
        requests.begin(64, 0);
        assert!(requests.limit.admits(requests.now));
        for _ in 0..64 {
            assert!(!requests.finish_first());
        }
        assert_eq!(requests.fill(), 1000);
    }

    #[test]
    fn has_no_limit_while_nothing_returns() {
        let mut requests = Requests::new();
        requests.begin(64, 5);
        requests.starve(5);
        requests.starve(5);
        assert!(requests.limit.admits(requests.now));
    }

    #[test]
    fn admits_as_many_as_were_served_when_one_starved() {
        let mut requests = limited_to_five();
        // Four of the first, and the one that gets the process of the fifth.
        assert_eq!(requests.open.len(), 5);
        assert!(!requests.limit.admits(requests.now));
        assert!(!requests.finish_first());
        assert_eq!(requests.fill(), 5);
    }

    #[test]
    fn closes_one_connection_for_each_that_starves() {
        let mut requests = Requests::new();
        requests.begin(64, 5);
        for index in 5..64 {
            requests.starve(index);
        }
        for number in 0..59 {
            assert!(requests.finish_first(), "{number}");
            // Its process accepts the next one.
            requests.serve(4);
            assert_eq!(requests.limit.limit, 5, "{number}");
        }
        assert!(!requests.finish_first());
        assert_eq!(requests.fill(), 5);
    }

    #[test]
    fn closes_another_connection_only_for_one_that_starves_for_long() {
        let mut requests = Requests::new();
        requests.begin(6, 5);
        requests.starve(5);
        assert!(requests.finish_first());
        requests.starve(4);
        assert!(!requests.finish_first());
        let starving = requests.open.last_mut().unwrap();
        let for_long = ResponseSilence {
            waited: LONG_PATIENCE,
            ..UNREAD
        };
        requests.limit.starve(starving, for_long, 0, requests.now);
        assert!(requests.finish_first());
        assert!(!requests.finish_first());
    }

    #[test]
    fn knows_whether_a_request_may_take_an_idle_connection() {
        let mut requests = Requests::new();
        assert!(!requests.limit.is_opening());
        requests.begin(3, 1);
        assert!(requests.limit.is_opening());
        requests.serve(1);
        requests.starve(2);
        assert!(!requests.limit.is_opening());
    }

    #[test]
    fn probes_with_one_more_and_later_again_if_that_starves() {
        let mut requests = limited_to_five();
        let mut delay = MIN_PROBE_DELAY;
        for _ in 0..10 {
            requests.pass(delay - Duration::from_millis(1));
            assert!(!requests.limit.admits(requests.now));
            requests.pass(Duration::from_millis(1));
            assert!(requests.limit.admits(requests.now));
            requests.begin(1, 0);
            assert!(!requests.limit.admits(requests.now), "one probe");
            requests.finish_first();
            requests.begin(1, 1);
            requests.starve(4);
            assert!(requests.finish_first());
            requests.serve(3);
            assert_eq!(requests.limit.limit, 5);
            delay = (delay * 2).min(MAX_PROBE_DELAY);
        }
    }

    #[test]
    fn grows_by_doubling_while_probes_are_served() {
        let mut requests = limited_to_five();
        requests.pass(MIN_PROBE_DELAY);
        let mut rounds = 0;
        while requests.open.len() < 64 {
            rounds += 1;
            let before = requests.open.len();
            while requests.limit.admits(requests.now) {
                requests.begin(1, 0);
            }
            for index in before..requests.open.len() {
                requests.serve(index);
            }
        }
        assert!(rounds <= 6, "{rounds}");
    }

    #[test]
    fn is_lower_when_a_process_is_lost_and_never_zero() {
        let mut requests = limited_to_five();
        for limit in [4, 3, 2, 1, 1] {
            // A request that replaces another opens a connection, and one more response comes.
            requests.finish_first();
            let mut request = requests.limit.begin(requests.now);
            assert_eq!(requests.limit.open(&mut request), LONG_PATIENCE);
            requests.open.insert(0, request);
            let others = requests.open.len() - 1;
            if others > 0 {
                requests.open.swap(0, others);
                requests.finish_first();
                requests.begin(1, 1);
            }
            let index = others.saturating_sub(1);
            requests.starve(index);
            assert_eq!(requests.limit.limit, limit);
            if others > 0 {
                requests.finish(requests.open.len() - 1);
            }
            requests.serve(index);
            assert!(!requests.limit.admits(requests.now));
        }
    }

    #[test]
    fn a_request_of_unknown_fate_starves_only_if_it_was_overtaken_many_times() {
        let mut requests = Requests::new();
        requests.begin(2, 1);
        for round in 0..MIN_OVERTAKEN {
            let last = requests.open.last_mut().unwrap();
            requests.limit.starve(last, UNKNOWN, 0, requests.now);
            assert_eq!(requests.limit.limit, usize::MAX, "{round}");
            requests.begin(1, 1);
            requests.open.swap(1, 2);
            requests.finish_first();
        }
        let last = requests.open.last_mut().unwrap();
        requests.limit.starve(last, UNKNOWN, 0, requests.now);
        assert_eq!(requests.limit.limit, 1);
    }

    #[test]
    fn forgets_the_limit_when_nothing_returns_and_it_is_not_known_what_was_read() {
        let mut requests = limited_to_five();
        requests.pass(MIN_PROBE_DELAY);
        requests.begin(1, 0);
        assert!(!requests.limit.admits(requests.now));
        let probe = requests.open.last_mut().unwrap();
        requests.limit.starve(probe, UNKNOWN, 0, requests.now);
        assert!(requests.limit.admits(requests.now));
    }

    #[test]
    fn an_application_that_closes_its_connections_has_no_limit() {
        let mut requests = limited_to_five();
        requests.limit.set_closing(true);
        assert!(requests.limit.admits(requests.now));
        requests.begin(1, 0);
        requests.finish_first();
        requests.starve(4);
        assert!(requests.limit.admits(requests.now));
        // Once a connection could be used again, it may have one.
        requests.limit.set_closing(false);
        requests.begin(1, 0);
        requests.finish_first();
        requests.starve(4);
        assert!(!requests.limit.admits(requests.now));
    }

    #[test]
    fn forgets_a_limit_that_was_not_probed_for_long() {
        let mut requests = limited_to_five();
        while !requests.open.is_empty() {
            requests.finish_first();
        }
        requests.pass(MAX_AGE);
        requests.begin(1, 1);
        requests.finish_first();
        assert_eq!(requests.limit.limit, 5);
        requests.pass(MAX_AGE);
        assert_eq!(requests.fill(), 1000);
    }

    #[test]
    fn counts_come_back_to_zero() {
        let mut requests = limited_to_five();
        requests.begin(2, 1);
        requests.starve(6);
        for mut request in std::mem::take(&mut requests.open) {
            requests.limit.open(&mut request);
            requests.limit.end(&mut request);
        }
        let limit = &requests.limit;
        let counts = [
            limit.in_flight,
            limit.served,
            limit.starving,
            limit.unread,
            limit.owed,
        ];
        assert_eq!(counts, [0; 5]);
    }

    proptest! {
        #[test]
        fn always_admits_a_request_when_none_is_in_flight(
            steps in proptest::collection::vec((0..7_u8, 0..8_usize, 0..4_usize), 1..200),
        ) {
            let mut requests = Requests::new();
            for (step, index, idle) in steps {
                let Requests { limit, open, now } = &mut requests;
                let index = index.min(open.len().saturating_sub(1));
                match (step, open.get_mut(index)) {
                    (0, _) | (_, None) => open.push(limit.begin(*now)),
                    (1, Some(request)) => {
                        limit.open(request);
                    }
                    (2, Some(request)) => limit.serve(request, *now),
                    (3, Some(request)) => limit.starve(request, UNREAD, idle, *now),
                    (4, Some(request)) => limit.starve(request, UNKNOWN, idle, *now),
                    (5, Some(_)) => {
                        limit.return_connection(idle, *now);
                    }
                    (_, Some(_)) => limit.end(&mut open.remove(index)),
                }
                *now += Duration::from_millis(idle as u64);
                prop_assert!(limit.limit > 0 && limit.owed <= limit.starving);
                prop_assert!(limit.served + limit.starving <= limit.in_flight);
                prop_assert!(limit.in_flight > 0 || limit.admits(*now));
            }
        }
    }
}
