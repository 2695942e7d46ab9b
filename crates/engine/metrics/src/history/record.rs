//! A record of the history: what happened in one step.
//!
//! Its encoding has a fixed size: a checksum (CRC-32 of all that follows), the seconds that it is about, its time, the columns, two histograms,
//! and eight sites. Numbers are little-endian.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::column::{ColumnKind, HistoryColumn};
use crate::compact_histogram::CompactHistogram;

/// The columns that a record has room for.
const COLUMNS: usize = 40;

/// The value of a column that is not known.
const UNKNOWN: u64 = u64::MAX;

/// The sites that an encoded record has: the busiest.
const SITES: usize = 8;

/// The bytes of a site, and those of its name among them. The name has its length before it.
const SITE_BYTES: usize = 64;
const NAME_BYTES: usize = SITE_BYTES - 3 * 8 - 1;

/// The bytes before the columns: the checksum, the seconds, the time, the number of sites, whether there were others, and room.
const HEAD_BYTES: usize = 4 + 4 + 8 + 8;

/// The bytes of a record.
pub(super) const RECORD_BYTES: usize =
    HEAD_BYTES + COLUMNS * 8 + 2 * CompactHistogram::BYTES + SITES * SITE_BYTES;

const _: () = assert!(HistoryColumn::ALL.len() <= COLUMNS);

/// What happened in one step.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryRecord {
    /// When the step began, in seconds since 1970.
    pub time: u64,
    /// How many seconds the record is about: fewer than the step has while it lasts and if nothing counted for a time; more than one for a
    /// step of a second if the seconds before it have no record.
    pub seconds: u32,
    values: [u64; COLUMNS],
    /// The times of requests.
    pub durations: CompactHistogram,
    /// The times to the first bytes of responses.
    pub first_bytes: CompactHistogram,
    sites: HashMap<u64, HistorySite>,
    /// Whether sites that are not there had requests, too.
    has_other_sites: bool,
}

/// What happened at a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySite {
    /// Its name; the end of a long one may be missing.
    pub name: String,
    /// Its requests that have ended.
    pub requests: u64,
    /// Those with a status of 500 and above.
    pub server_errors: u64,
}

/// A number of the history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HistoryValue {
    /// It is not known.
    Unknown,
    /// A whole number.
    Whole(u64),
    /// A number of seconds.
    Seconds(f64),
}

impl HistoryRecord {
    /// A record that knows nothing yet.
    pub fn new(time: u64, seconds: u32) -> Self {
        Self {
            time,
            seconds,
            values: [UNKNOWN; COLUMNS],
            durations: CompactHistogram::default(),
            first_bytes: CompactHistogram::default(),
            sites: HashMap::new(),
            has_other_sites: false,
        }
    }

    /// The counters of a process that has just started.
    pub fn zero() -> Self {
        Self {
            values: [0; COLUMNS],
            ..Self::new(0, 0)
        }
    }

    /// The value of a column; of [`CpuTime`](HistoryColumn::CpuTime) in microseconds.
    pub fn value(&self, column: HistoryColumn) -> Option<u64> {
        let value = self.values.get(column as usize).copied();
        value.filter(|value| *value != UNKNOWN)
    }

    /// Sets the value of a column.
    pub fn set(&mut self, column: HistoryColumn, value: u64) {
        if let Some(own) = self.values.get_mut(column as usize) {
            *own = value.min(UNKNOWN - 1);
        }
    }

    /// Adds what happened at a site.
    pub fn add_site(&mut self, name: &str, requests: u64, server_errors: u64) {
        self.add_named(site_id(name), name, [requests, server_errors]);
    }

    fn add_named(&mut self, id: u64, name: &str, [requests, server_errors]: [u64; 2]) {
        let site = self.sites.entry(id).or_insert_with(|| HistorySite {
            name: name.to_owned(),
            requests: 0,
            server_errors: 0,
        });
        site.requests = site.requests.saturating_add(requests);
        site.server_errors = site.server_errors.saturating_add(server_errors);
    }

    /// What happened at sites that had requests, by the numbers of their names.
    pub(super) fn sites(&self) -> impl Iterator<Item = (u64, &HistorySite)> {
        self.sites.iter().map(|(id, site)| (*id, site))
    }

    /// Whether sites that are not there had requests, too.
    pub(super) fn has_other_sites(&self) -> bool {
        self.has_other_sites
    }

    /// The sites with most requests, at most this many. Those of an account may be named.
    pub fn busiest_sites(&self, allowed: Option<&[String]>, max: usize) -> Vec<&HistorySite> {
        let allowed = allowed.map(|names| names.iter().map(|name| site_id(name)).collect());
        let is_allowed = |id: u64| {
            allowed
                .as_ref()
                .is_none_or(|ids: &Vec<_>| ids.contains(&id))
        };
        let sites = self.sites().filter(|(id, _)| is_allowed(*id));
        let mut sites: Vec<_> = sites.map(|(_, site)| site).collect();
        sites.sort_unstable_by(|a, b| (b.requests, &a.name).cmp(&(a.requests, &b.name)));
        sites.truncate(max);
        sites
    }

    /// What happened since `before`, if both are records of counters. A counter that has fallen is a sum of fewer parts, such as after a
    /// reload: what the others have counted meanwhile is left out.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        for (column, earlier) in HistoryColumn::ALL.iter().zip(before.values) {
            let is_counter = column.kind() != ColumnKind::Largest;
            if let Some(value) = self.value(*column).filter(|_| is_counter) {
                let value = if earlier == UNKNOWN {
                    UNKNOWN
                } else {
                    value.saturating_sub(earlier)
                };
                if let Some(own) = since.values.get_mut(*column as usize) {
                    *own = value;
                }
            }
        }
        since
    }

    /// Adds what happened in a step that is a part of this one.
    pub fn add(&mut self, part: &Self) {
        self.seconds = self.seconds.saturating_add(part.seconds);
        for column in HistoryColumn::ALL {
            let sum = match (self.value(*column), part.value(*column)) {
                (own, None) => own,
                (None, value) => value,
                (Some(own), Some(value)) => Some(match column.kind() {
                    ColumnKind::Sum | ColumnKind::Time => own.saturating_add(value),
                    ColumnKind::Largest => own.max(value),
                }),
            };
            if let Some(sum) = sum {
                self.set(*column, sum);
            }
        }
        self.durations.add(&part.durations);
        self.first_bytes.add(&part.first_bytes);
        for (id, site) in part.sites() {
            self.add_named(id, &site.name, [site.requests, site.server_errors]);
        }
        self.has_other_sites |= part.has_other_sites;
    }

    /// All numbers with their names. The names and their order are the same for all records.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, HistoryValue)> {
        let seconds = ("seconds", HistoryValue::Whole(self.seconds.into()));
        let columns = HistoryColumn::ALL.iter().map(|column| {
            let value = match (self.value(*column), column.kind()) {
                (None, _) => HistoryValue::Unknown,
                (Some(value), ColumnKind::Time) => {
                    HistoryValue::Seconds(std::time::Duration::from_micros(value).as_secs_f64())
                }
                (Some(value), _) => HistoryValue::Whole(value),
            };
            (column.name(), value)
        });
        let times = [
            ("duration_seconds_mean", self.durations.mean()),
            ("duration_seconds_p50", self.durations.quantile(0.5)),
            ("duration_seconds_p90", self.durations.quantile(0.9)),
            ("duration_seconds_p99", self.durations.quantile(0.99)),
            ("first_byte_seconds_mean", self.first_bytes.mean()),
            ("first_byte_seconds_p50", self.first_bytes.quantile(0.5)),
            ("first_byte_seconds_p90", self.first_bytes.quantile(0.9)),
            ("first_byte_seconds_p99", self.first_bytes.quantile(0.99)),
        ];
        let times = times.into_iter().map(|(name, time)| {
            let seconds = |time: std::time::Duration| HistoryValue::Seconds(time.as_secs_f64());
            (name, time.map_or(HistoryValue::Unknown, seconds))
        });
        [seconds].into_iter().chain(columns).chain(times)
    }

    /// The encoding.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut sites: Vec<_> = self.sites().collect();
        sites.sort_unstable_by_key(|(id, site)| (Reverse(site.requests), *id));
        let has_other_sites = self.has_other_sites || sites.len() > SITES;
        sites.truncate(SITES);
        let mut bytes = Vec::with_capacity(RECORD_BYTES);
        bytes.extend([0; 4]);
        bytes.extend(self.seconds.to_le_bytes());
        bytes.extend(self.time.to_le_bytes());
        let count = u8::try_from(sites.len()).unwrap_or(0);
        bytes.extend([count, has_other_sites.into(), 0, 0, 0, 0, 0, 0]);
        bytes.extend(self.values.iter().flat_map(|value| value.to_le_bytes()));
        self.durations.encode(&mut bytes);
        self.first_bytes.encode(&mut bytes);
        for (id, site) in sites {
            for number in [id, site.requests, site.server_errors] {
                bytes.extend(number.to_le_bytes());
            }
            let name = cut(&site.name);
            bytes.push(u8::try_from(name.len()).unwrap_or(0));
            bytes.extend(name.as_bytes());
            bytes.resize(bytes.len() + NAME_BYTES - name.len(), 0);
        }
        bytes.resize(RECORD_BYTES, 0);
        let checksum = checksum(&bytes).to_le_bytes();
        for (byte, sum) in bytes.iter_mut().zip(checksum) {
            *byte = sum;
        }
        bytes
    }

    /// Reads an encoding; `None`: there is none, or it is damaged.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..RECORD_BYTES)?;
        let (stored, rest) = bytes.split_first_chunk()?;
        let (seconds, rest) = rest.split_first_chunk()?;
        let seconds = u32::from_le_bytes(*seconds);
        // A slot that was never written has no seconds, and needs no checksum.
        if seconds == 0 || u32::from_le_bytes(*stored) != checksum(bytes) {
            return None;
        }
        let (time, rest) = rest.split_first_chunk()?;
        let (&[site_count, has_other_sites, ..], rest) = rest.split_first_chunk::<8>()?;
        let (values, rest) = rest.split_at_checked(COLUMNS * 8)?;
        let (durations, rest) = rest.split_at_checked(CompactHistogram::BYTES)?;
        let (first_bytes, sites) = rest.split_at_checked(CompactHistogram::BYTES)?;
        let mut record = Self {
            durations: CompactHistogram::decode(durations)?,
            first_bytes: CompactHistogram::decode(first_bytes)?,
            has_other_sites: has_other_sites != 0,
            ..Self::new(u64::from_le_bytes(*time), seconds)
        };
        for (own, value) in record.values.iter_mut().zip(values.as_chunks().0) {
            *own = u64::from_le_bytes(*value);
        }
        let (sites, _) = sites.as_chunks::<SITE_BYTES>();
        for site in sites.iter().take(site_count.into()) {
            let (numbers, name) = site.split_first_chunk::<24>()?;
            let mut numbers = numbers.as_chunks().0.iter();
            let mut number = || numbers.next().copied().map(u64::from_le_bytes);
            let (id, counts) = (number()?, [number()?, number()?]);
            let (length, name) = name.split_first()?;
            let name = name.get(..usize::from(*length))?;
            record.add_named(id, &String::from_utf8_lossy(name), counts);
        }
        Some(record)
    }
}

impl HistorySite {
    /// The name, with a mark if its end is missing. Two sites have two.
    pub(super) fn shown_name(&self, id: u64) -> String {
        if site_id(&self.name) == id {
            return self.name.clone();
        }
        format!("{}…{id:016x}", self.name)
    }
}

/// The checksum of an encoding, whose first four bytes are for it.
fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes.get(4..).unwrap_or_default())
}

/// The part of a name that there is room for.
fn cut(name: &str) -> &str {
    name.get(..name.floor_char_boundary(NAME_BYTES))
        .unwrap_or_default()
}

/// The number of a name: FNV-1a, which has to be the same in each version and process. Names are those of the configuration, so nobody
/// looks for two with one number.
pub(super) fn site_id(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::DurationHistogram;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_record_is_read_as_it_was_written(
            time: u64, seconds in 1..u32::MAX, values: [u64; 8], names in prop::collection::hash_map("[a-zé]{1,39}", 0..1000_u64, 0..8), damage: usize,
        ) {
            let mut record = HistoryRecord::new(time, seconds);
            for (column, value) in HistoryColumn::ALL.iter().zip(values) {
                record.set(*column, value);
            }
            for (name, requests) in names.iter().filter(|(name, _)| name.len() <= NAME_BYTES) {
                record.add_site(name, *requests, requests / 2);
            }
            let mut bytes = record.encode();
            prop_assert_eq!(bytes.len(), RECORD_BYTES);
            prop_assert_eq!(HistoryRecord::decode(&bytes), Some(record));
            let at = damage % bytes.len();
            bytes[at] ^= 1;
            prop_assert_eq!(HistoryRecord::decode(&bytes), None);
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), RECORD_BYTES..=RECORD_BYTES)) {
            let sum = checksum(&bytes).to_le_bytes();
            bytes[..4].copy_from_slice(&sum);
            if let Some(record) = HistoryRecord::decode(&bytes) {
                let mut twice = record.clone();
                twice.add(&record);
                prop_assert_eq!(twice.values().count(), record.values().count());
                prop_assert!(HistoryRecord::decode(&twice.encode()).is_some());
            }
        }
    }

    #[test]
    fn a_sum_has_all_of_its_parts() {
        let mut sum = HistoryRecord::new(60, 0);
        for second in 0..3 {
            let mut record = HistoryRecord::new(60 + second, 1);
            record.set(HistoryColumn::Requests, 10 + second);
            record.set(HistoryColumn::Connections, 5 - second);
            record.set(HistoryColumn::CpuTime, 500_000);
            let histogram = DurationHistogram::default();
            histogram.observe(Duration::from_millis(1 << second));
            record.durations = CompactHistogram::from(&histogram.read());
            for site in 0..=second {
                record.add_site(&format!("s{site}"), 2, site);
            }
            sum.add(&record);
        }
        assert_eq!(sum.seconds, 3);
        assert_eq!(sum.value(HistoryColumn::Requests), Some(33));
        assert_eq!(sum.value(HistoryColumn::Connections), Some(5));
        assert_eq!(sum.value(HistoryColumn::Memory), None);
        let values: HashMap<_, _> = sum.values().collect();
        assert_eq!(values["cpu_seconds"], HistoryValue::Seconds(1.5));
        assert_eq!(values["memory_bytes"], HistoryValue::Unknown);
        let HistoryValue::Seconds(median) = values["duration_seconds_p50"] else {
            panic!("{values:?}");
        };
        assert!((0.002..0.0024).contains(&median), "{median}");
        let sites = sum.busiest_sites(None, 2);
        let named: Vec<_> = sites
            .iter()
            .map(|site| (&*site.name, site.requests))
            .collect();
        assert_eq!(named, [("s0", 6), ("s1", 4)]);
        let own = ["s2".to_owned()];
        assert_eq!(sum.busiest_sites(Some(&own), 9)[0].server_errors, 2);
    }

    #[test]
    fn counters_are_told_by_what_they_grew() {
        let columns = [
            HistoryColumn::Requests,
            HistoryColumn::Connections,
            HistoryColumn::Panics,
            HistoryColumn::CpuTime,
        ];
        let of = |values: [u64; 4]| {
            let mut record = HistoryRecord::new(1, 1);
            for (column, value) in columns.into_iter().zip(values) {
                record.set(column, value);
            }
            record
        };
        let since = of([15, 3, 4, 9]).since(&of([10, 7, 5, 2]));
        assert_eq!(since, of([5, 3, 0, 7]));
        let unknown = of([15, 3, 4, 9]).since(&HistoryRecord::new(0, 0));
        assert_eq!(unknown.value(HistoryColumn::Requests), None);
        assert_eq!(unknown.value(HistoryColumn::Connections), Some(3));
    }

    #[test]
    fn the_busiest_sites_are_stored_and_long_names_are_marked() {
        let mut record = HistoryRecord::new(1, 1);
        for site in 0..20_u64 {
            record.add_site(&format!("s{site}"), site, 0);
        }
        let long = "é".repeat(30);
        record.add_site(&long, 100, 1);
        let stored = HistoryRecord::decode(&record.encode()).unwrap();
        assert!(stored.has_other_sites());
        assert_eq!(stored.sites().count(), SITES);
        let (id, site) = stored
            .sites()
            .max_by_key(|(_, site)| site.requests)
            .unwrap();
        assert_eq!(id, site_id(&long));
        assert_eq!(site.name, "é".repeat(19));
        assert!(site.shown_name(id).starts_with(&format!("{}…", site.name)));
        let own = [long];
        assert_eq!(stored.busiest_sites(Some(&own), 9).len(), 1);
        assert_eq!(stored.busiest_sites(Some(&["é".repeat(19)]), 9).len(), 0);
    }
}
