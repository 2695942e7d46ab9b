//! The records of a time, by name.

use std::collections::HashMap;
use std::io;

use super::file::HistoryFile;
use super::record::{HistoryRecord, HistorySite, HistoryValue, site_id};
use super::step::HistoryStep;

/// The sites of [`HistorySeries`]: those with most requests in all its time.
const MAX_SITES: usize = 32;

/// What is asked of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    /// The length of each step.
    pub step: HistoryStep,
    /// The time of the first step, in seconds since 1970.
    pub from: u64,
    /// The time that comes after the last step. There are no more steps than are kept.
    pub to: u64,
    /// The only sites that are asked for, and nothing of the whole server; `None`: all.
    pub sites: Option<Vec<String>>,
}

/// The values of each step of a time.
#[derive(Clone, Debug, PartialEq)]
pub struct HistorySeries {
    /// When the first step begins, in seconds since 1970.
    pub start: u64,
    /// The series of the server, by name.
    pub server: Vec<(&'static str, Vec<HistoryValue>)>,
    /// Those of the sites with most requests, by their names.
    pub sites: Vec<(String, SiteHistory)>,
}

/// The values of each step of a site.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteHistory {
    /// Requests that have ended.
    pub requests: Vec<HistoryValue>,
    /// Those with a status of 500 and above.
    pub server_errors: Vec<HistoryValue>,
}

impl HistoryFile {
    /// What is known of a time.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn series(&self, query: &HistoryQuery) -> io::Result<HistorySeries> {
        let step = query.step;
        let kept = step.slots() * step.seconds();
        let start = step.begin(query.from.max(query.to.saturating_sub(kept)));
        let is_of_server = query.sites.is_none();
        let names = HistoryRecord::new(0, 0);
        let mut server: Vec<_> = (names.values().map(|(name, _)| (name, Vec::new())))
            .take_while(|_| is_of_server)
            .collect();
        let mut sites = SiteTable::new(query.sites.as_deref());
        self.each(step, start..query.to, |record| {
            match &record {
                Some(record) => {
                    for ((_, series), (_, value)) in server.iter_mut().zip(record.values()) {
                        series.push(value);
                    }
                }
                None => {
                    for (_, series) in &mut server {
                        series.push(HistoryValue::Unknown);
                    }
                }
            }
            sites.add(record.as_ref());
        })?;
        Ok(HistorySeries {
            start,
            server,
            sites: sites.series(),
        })
    }
}

/// What is known of sites, in bounded memory: eight for each step.
struct SiteTable {
    allowed: Option<Vec<u64>>,
    /// What a site has in a step in which it is not: unknown without a record, or if there were other sites.
    absent: Vec<HistoryValue>,
    names: HashMap<u64, HistorySite>,
    entries: Vec<SiteEntry>,
}

struct SiteEntry {
    step: usize,
    id: u64,
    requests: u64,
    server_errors: u64,
}

impl SiteTable {
    fn new(allowed: Option<&[String]>) -> Self {
        let ids = |names: &[String]| names.iter().map(|name| site_id(name)).collect();
        Self {
            allowed: allowed.map(ids),
            absent: Vec::new(),
            names: HashMap::new(),
            entries: Vec::new(),
        }
    }

    fn add(&mut self, record: Option<&HistoryRecord>) {
        let step = self.absent.len();
        self.absent.push(match record {
            Some(record) if !record.has_other_sites() => HistoryValue::Whole(0),
            _ => HistoryValue::Unknown,
        });
        let allowed = self.allowed.as_deref();
        let sites = record.into_iter().flat_map(HistoryRecord::sites);
        for (id, site) in sites.filter(|(id, _)| allowed.is_none_or(|ids| ids.contains(id))) {
            let sum = self.names.entry(id).or_insert_with(|| HistorySite {
                name: site.name.clone(),
                requests: 0,
                server_errors: 0,
            });
            sum.requests = sum.requests.saturating_add(site.requests);
            self.entries.push(SiteEntry {
                step,
                id,
                requests: site.requests,
                server_errors: site.server_errors,
            });
        }
    }

    fn series(self) -> Vec<(String, SiteHistory)> {
        let mut busiest: Vec<_> = self.names.into_iter().collect();
        busiest
            .sort_unstable_by(|(_, a), (_, b)| (b.requests, &a.name).cmp(&(a.requests, &b.name)));
        busiest.truncate(MAX_SITES);
        let mut places = HashMap::new();
        let mut series: Vec<_> = busiest
            .iter()
            .enumerate()
            .map(|(place, (id, site))| {
                places.insert(*id, place);
                let history = SiteHistory {
                    requests: self.absent.clone(),
                    server_errors: self.absent.clone(),
                };
                (site.shown_name(*id), history)
            })
            .collect();
        for entry in self.entries {
            let place = places.get(&entry.id);
            let Some((_, history)) = place.and_then(|place| series.get_mut(*place)) else {
                continue;
            };
            for (values, value) in [
                (&mut history.requests, entry.requests),
                (&mut history.server_errors, entry.server_errors),
            ] {
                if let Some(own) = values.get_mut(entry.step) {
                    *own = HistoryValue::Whole(value);
                }
            }
        }
        series
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HistoryColumn;

    const BEGIN: u64 = 1_800_000_000;

    /// Four seconds, of which the third is not known; many sites in the fourth.
    fn file() -> HistoryFile {
        let file = HistoryFile::in_memory().unwrap();
        for second in [0, 1, 3] {
            let mut record = HistoryRecord::new(BEGIN + second, 1);
            record.set(HistoryColumn::Requests, second);
            record.add_site("shop", 100 + second, second);
            let others = if second == 3 { 20 } else { 1 };
            for other in 0..others {
                record.add_site(&format!("s{other}"), 50 - other, 0);
            }
            file.write(HistoryStep::Second, &record).unwrap();
        }
        file
    }

    fn query(sites: Option<&[&str]>) -> HistoryQuery {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        HistoryQuery {
            step: HistoryStep::Second,
            from: BEGIN,
            to: BEGIN + 5,
            sites: sites.map(names),
        }
    }

    #[test]
    fn what_is_not_known_is_not_zero() {
        use HistoryValue::{Unknown, Whole};
        let series = file().series(&query(None)).unwrap();
        assert_eq!(series.start, BEGIN);
        let (name, requests) = &series.server[1];
        assert_eq!(*name, "requests");
        assert_eq!(*requests, [Whole(0), Whole(1), Unknown, Whole(3), Unknown]);
        let (name, shop) = &series.sites[0];
        assert_eq!(name, "shop");
        assert_eq!(
            shop.server_errors,
            [Whole(0), Whole(1), Unknown, Whole(3), Unknown]
        );
        let last = series.sites.iter().find(|(name, _)| name == "s6").unwrap();
        assert_eq!(
            last.1.requests,
            [Whole(0), Whole(0), Unknown, Whole(44), Unknown]
        );
        assert_eq!(series.sites.len(), 8);
    }

    #[test]
    fn who_is_for_some_sites_sees_these() {
        let series = file().series(&query(Some(&["s0", "none"]))).unwrap();
        assert!(series.server.is_empty());
        let names: Vec<_> = series.sites.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["s0"]);
        assert_eq!(series.sites[0].1.requests.len(), 5);
    }

    #[test]
    fn there_are_no_more_steps_than_are_kept() {
        let all = HistoryQuery {
            from: 0,
            ..query(None)
        };
        let series = file().series(&all).unwrap();
        assert_eq!(series.server[0].1.len() as u64, HistoryStep::Second.slots());
        assert_eq!(series.start, BEGIN + 5 - HistoryStep::Second.slots());
        let nothing = HistoryQuery {
            from: BEGIN + 9,
            ..query(None)
        };
        assert_eq!(file().series(&nothing).unwrap().server[0].1, []);
        let end = HistoryQuery {
            to: u64::MAX,
            ..query(None)
        };
        assert!(
            file().series(&end).unwrap().server[0]
                .1
                .iter()
                .all(|value| *value == HistoryValue::Unknown)
        );
    }
}
