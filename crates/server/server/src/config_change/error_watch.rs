//! Whether requests fail more often since a change of the configuration than before it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_sites::SiteTotals;
use apus_upstream::{GroupStatus, NodeAvailability};
use serde_json::{Value, json};

/// How long before a change requests count as those before it.
const BEFORE: Duration = Duration::from_secs(60);

/// The least failures beyond what was expected: fewer are no sign of anything.
const LEAST_FAILURES: f64 = 5.0;

/// How many standard deviations are beyond chance.
const DEVIATIONS: f64 = 3.0;

/// The counts of sites by name.
pub(crate) type Totals = HashMap<Arc<str>, SiteTotals>;

/// The counts of the last minute.
#[derive(Default)]
pub(super) struct RecentTotals(VecDeque<(Instant, Totals)>);

impl RecentTotals {
    /// Notes the counts of now. It has to be called every few seconds.
    pub(super) fn note(&mut self, totals: Totals) {
        let now = Instant::now();
        // One from before that time stays, so that there is always a whole minute.
        while (self.0.get(1)).is_some_and(|(at, _)| now.duration_since(*at) >= BEFORE) {
            self.0.pop_front();
        }
        self.0.push_back((now, totals));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The shares of requests of each site that failed since then.
    fn shares(&self, now: &Totals) -> HashMap<Arc<str>, f64> {
        let begin = self.0.front().map(|(_, totals)| totals);
        let shares = now.iter().map(|(site, totals)| {
            let before = begin.and_then(|begin| begin.get(site));
            (Arc::clone(site), share(since(totals, before)))
        });
        shares.collect()
    }
}

/// The requests and failures since an earlier count.
fn since(now: &SiteTotals, before: Option<&SiteTotals>) -> SiteTotals {
    let before = before.copied().unwrap_or_default();
    SiteTotals {
        requests: now.requests.saturating_sub(before.requests),
        failures: now.failures.saturating_sub(before.failures),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a minute")]
fn share(totals: SiteTotals) -> f64 {
    if totals.requests == 0 {
        return 0.0;
    }
    totals.failures as f64 / totals.requests as f64
}

/// What requests did before a change, and since it.
pub(super) struct ErrorWatch {
    /// The share of requests of each site that failed in the minute before it.
    before: HashMap<Arc<str>, f64>,
    /// The counts at the change.
    start: Totals,
    /// The groups of origins without a node that gets requests.
    out: BTreeSet<Arc<str>>,
}

impl ErrorWatch {
    pub(super) fn begin(recent: &RecentTotals, now: Totals, groups: &[GroupStatus]) -> Self {
        Self {
            before: recent.shares(&now),
            start: now,
            out: groups_out(groups),
        }
    }

    /// Why it is worse than before; `None`: it is not.
    pub(super) fn fault(&self, now: &Totals, groups: &[GroupStatus]) -> Option<String> {
        if let Some(group) = groups_out(groups).difference(&self.out).next() {
            return Some(format!(
                "no node of the upstream group {group} gets requests any more"
            ));
        }
        let mut sites: Vec<_> = now.iter().collect();
        sites.sort_by_key(|(site, _)| Arc::clone(site));
        sites.into_iter().find_map(|(site, totals)| {
            let counted = since(totals, self.start.get(site));
            let before = self.before.get(site).copied().unwrap_or(0.0);
            is_worse(counted, before).then(|| {
                format!(
                    "{} of {} requests of the site {site} failed with 5xx since the change, and {:.1}% of those before",
                    counted.failures,
                    counted.requests,
                    before * 100.0
                )
            })
        })
    }

    /// What happened since the change, by site: those with most failures first, up to a number.
    pub(super) fn report(&self, now: &Totals) -> Value {
        const MOST: usize = 20;
        let mut sites: Vec<_> = now
            .iter()
            .map(|(site, totals)| (site, since(totals, self.start.get(site))))
            .filter(|(_, counted)| counted.requests > 0)
            .collect();
        sites.sort_by_key(|(site, counted)| {
            (
                std::cmp::Reverse((counted.failures, counted.requests)),
                Arc::clone(site),
            )
        });
        let sites = sites.into_iter().take(MOST).map(|(site, counted)| {
            json!({
                "site": &**site,
                "requests": counted.requests,
                "failures": counted.failures,
                "share": share(counted),
                "share_before": self.before.get(site).copied().unwrap_or(0.0),
            })
        });
        sites.collect()
    }
}

/// Whether more failed than a share of before explains: by three standard deviations of the binomial distribution and five more.
#[expect(clippy::cast_precision_loss, reason = "counts of an hour at most")]
fn is_worse(counted: SiteTotals, before: f64) -> bool {
    let expected = counted.requests as f64 * before;
    let deviation = (expected * (1.0 - before)).sqrt();
    counted.failures as f64 >= expected + DEVIATIONS * deviation + LEAST_FAILURES
}

fn groups_out(groups: &[GroupStatus]) -> BTreeSet<Arc<str>> {
    let is_out = |group: &&GroupStatus| {
        let mut nodes = group.nodes.iter();
        !group.nodes.is_empty() && nodes.all(|node| matches!(node.state, NodeAvailability::Out(..)))
    };
    let out = groups.iter().filter(is_out);
    out.map(|group| Arc::clone(&group.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(requests: u64, failures: u64) -> Totals {
        let totals = SiteTotals { requests, failures };
        HashMap::from([(Arc::from("shop"), totals)])
    }

    #[test]
    fn failures_beyond_those_of_before_and_chance_are_worse() {
        for (requests, failures, before, expected) in [
            (0, 0, 0.0, false),
            (4, 4, 0.0, false),
            (5, 5, 0.0, true),
            (100_000, 4, 0.0, false),
            (100_000, 5, 0.0, true),
            // 100 expected, 9.5 of deviation.
            (1000, 133, 0.1, false),
            (1000, 134, 0.1, true),
            (1000, 1000, 1.0, false),
        ] {
            let counted = SiteTotals { requests, failures };
            assert_eq!(
                is_worse(counted, before),
                expected,
                "{failures} of {requests}"
            );
        }
    }

    #[test]
    fn what_was_before_is_that_of_the_last_minute() {
        let mut recent = RecentTotals::default();
        recent.note(totals(1000, 900));
        recent.note(totals(1100, 910));
        let watch = ErrorWatch::begin(&recent, totals(1200, 920), &[]);
        assert!((watch.before["shop"] - 0.1).abs() < 1e-9);
        assert_eq!(watch.fault(&totals(1300, 930), &[]), None);
        let fault = watch.fault(&totals(1300, 1020), &[]).unwrap();
        assert_eq!(
            fault,
            "100 of 100 requests of the site shop failed with 5xx since the change, and 10.0% of those before"
        );
        assert_eq!(watch.report(&totals(1300, 1020))[0]["failures"], 100);
        assert_eq!(watch.report(&totals(1200, 920)), json!([]));
        // A site that a reload removed and brought back begins anew.
        assert_eq!(watch.fault(&totals(1, 0), &[]), None);
        // A new site has no failures before.
        let watch = ErrorWatch::begin(&RecentTotals::default(), Totals::new(), &[]);
        assert!(watch.fault(&totals(5, 5), &[]).is_some());
    }
}
