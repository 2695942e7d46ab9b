//! The file of the history: a header, and a slot for each step that is kept.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};

use super::record::{HistoryRecord, RECORD_BYTES};
use super::step::{ALL_SLOTS, HistoryStep};

/// The bytes before the slots.
const HEADER_BYTES: u64 = 4096;

/// How the file begins.
const MAGIC: &[u8; 8] = b"ApusHist";

/// The version of the format. A file of another one is begun anew.
const VERSION: u32 = 1;

const RECORD: u64 = RECORD_BYTES as u64;

/// The bytes of the file.
const FILE_BYTES: u64 = HEADER_BYTES + ALL_SLOTS * RECORD;

const _: () = assert!(FILE_BYTES <= 32_000_000);

/// The records that are read at once.
const READ_AT_ONCE: u64 = 64;

/// The file of the history. It takes as much of the disk as was written.
#[derive(Debug)]
pub struct HistoryFile {
    file: File,
    is_durable: bool,
}

/// What was there before the file was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryFileOrigin {
    /// A history, which goes on.
    Continued,
    /// Nothing.
    New,
    /// A file of another version, or none of a history. It is begun anew.
    Replaced,
}

impl HistoryFile {
    /// Opens a file, or creates it. It can be opened once at a time.
    ///
    /// # Errors
    /// It cannot be read or written, or it is open in another process.
    pub fn open(path: &Path) -> io::Result<(Self, HistoryFileOrigin)> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::other("another process has it open"),
            TryLockError::Error(error) => error,
        })?;
        let history = Self {
            file,
            is_durable: true,
        };
        let origin = history.prepare()?;
        Ok((history, origin))
    }

    /// A history in memory, which ends with the process.
    ///
    /// # Errors
    /// There is not enough memory, or there are too many descriptors.
    pub fn in_memory() -> io::Result<Self> {
        let file = File::from(memfd_create("apus-history", MemfdFlags::CLOEXEC)?);
        let history = Self {
            file,
            is_durable: false,
        };
        history.prepare()?;
        Ok(history)
    }

    /// Whether it outlives the process.
    pub fn is_durable(&self) -> bool {
        self.is_durable
    }

    /// Makes the file what it has to be, and says what it was.
    fn prepare(&self) -> io::Result<HistoryFileOrigin> {
        let header = header();
        let mut found = vec![0; header.len()];
        let length = self.read_at(&mut found, 0)?;
        let origin = if self.file.metadata()?.len() == 0 {
            HistoryFileOrigin::New
        } else if length == header.len() && found == header {
            HistoryFileOrigin::Continued
        } else {
            HistoryFileOrigin::Replaced
        };
        if origin != HistoryFileOrigin::Continued {
            self.file.set_len(0)?;
            self.file.write_all_at(&header, 0)?;
        }
        self.file.set_len(FILE_BYTES)?;
        Ok(origin)
    }

    /// Writes a record of a step in the place of that of its time, or of the one that was the longest ago.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, step: HistoryStep, record: &HistoryRecord) -> io::Result<()> {
        let at = HEADER_BYTES + step.slot(record.time) * RECORD;
        self.file.write_all_at(&record.encode(), at)
    }

    /// The record of the step that has this time, if it is there and whole.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn record(&self, step: HistoryStep, time: u64) -> io::Result<Option<HistoryRecord>> {
        let mut found = None;
        let begin = step.begin(time);
        self.each(step, begin..begin + 1, |record| found = record)?;
        Ok(found)
    }

    /// Reads the record of each step that begins in this time, `None` if it is not known. No more steps are read than are kept.
    pub(super) fn each(
        &self,
        step: HistoryStep,
        time: std::ops::Range<u64>,
        mut take: impl FnMut(Option<HistoryRecord>),
    ) -> io::Result<()> {
        let mut begin = step.begin(time.start);
        let steps = time.end.saturating_sub(begin).div_ceil(step.seconds());
        let mut left = steps.min(step.slots());
        let mut bytes = Vec::new();
        while left > 0 {
            // Up to the last slot of the ring.
            let slot = step.slot(begin);
            let until_end = step.slots() - (slot - step.slot(0));
            let count = left.min(until_end).min(READ_AT_ONCE);
            bytes.resize(usize::try_from(count * RECORD).unwrap_or(0), 0);
            let length = self.read_at(&mut bytes, HEADER_BYTES + slot * RECORD)?;
            // A file that was cut off has nothing there.
            bytes.get_mut(length..).unwrap_or_default().fill(0);
            for stored in bytes.chunks_exact(RECORD_BYTES) {
                let record = HistoryRecord::decode(stored);
                take(record.filter(|record| record.time == begin));
                begin = begin.saturating_add(step.seconds());
            }
            left -= count;
        }
        Ok(())
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        let mut length = 0;
        while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, at + length as u64) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(length)
    }

    /// Makes minutes from seconds and hours from minutes where these know more, after a crash.
    ///
    /// # Errors
    /// Something cannot be read or written.
    pub fn rebuild(&self, now: u64) -> io::Result<()> {
        self.sum_up(HistoryStep::Second, HistoryStep::Minute, now)?;
        self.sum_up(HistoryStep::Minute, HistoryStep::Hour, now)
    }

    fn sum_up(&self, part: HistoryStep, step: HistoryStep, now: u64) -> io::Result<()> {
        let kept = part.slots() * part.seconds();
        // The first step whose parts may all be there.
        let first = step.begin((now + 1).saturating_sub(kept) + step.seconds() - 1);
        let mut begin = first;
        while begin <= now {
            let mut sum = HistoryRecord::new(begin, 0);
            let end = begin + step.seconds();
            self.each(part, begin..end, |record| {
                if let Some(record) = record {
                    sum.add(&record);
                }
            })?;
            let known = self.record(step, begin)?.map_or(0, |known| known.seconds);
            if sum.seconds > known {
                self.write(step, &sum)?;
            }
            begin = end;
        }
        Ok(())
    }
}

/// The header: what the file is, and how large its parts are.
fn header() -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend(VERSION.to_le_bytes());
    header.extend(RECORD.to_le_bytes());
    for step in HistoryStep::ALL {
        header.extend(step.slots().to_le_bytes());
    }
    header.extend(crc32fast::hash(&header).to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::HistoryColumn;

    const NOW: u64 = 1_800_000_000;

    fn record(time: u64, requests: u64) -> HistoryRecord {
        let mut record = HistoryRecord::new(time, 1);
        record.set(HistoryColumn::Requests, requests);
        record
    }

    fn requests(record: Option<HistoryRecord>) -> Option<u64> {
        record?.value(HistoryColumn::Requests)
    }

    #[test]
    fn a_ring_has_the_last_records_and_no_others() {
        let file = HistoryFile::in_memory().unwrap();
        let step = HistoryStep::Second;
        let begin = NOW - 5000;
        for second in 0..step.slots() + 100 {
            file.write(step, &record(begin + second, second)).unwrap();
        }
        let mut seen = Vec::new();
        let end = begin + step.slots() + 100;
        file.each(step, end - step.slots()..end + 50, |found| {
            seen.push(requests(found));
        })
        .unwrap();
        assert_eq!(seen.len() as u64, step.slots(), "no more than are kept");
        assert_eq!(
            seen,
            (100..step.slots() + 100).map(Some).collect::<Vec<_>>()
        );
        let mut older = Vec::new();
        file.each(step, begin..begin + 101, |found| {
            older.push(requests(found))
        })
        .unwrap();
        assert!(older[..100].iter().all(Option::is_none));
        assert_eq!(older[100], Some(100));
    }

    #[test]
    fn minutes_and_hours_are_made_from_seconds_after_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let (file, origin) = HistoryFile::open(&path).unwrap();
        assert_eq!(origin, HistoryFileOrigin::New);
        assert!(HistoryFile::open(&path).is_err(), "it is open");
        let hour = HistoryStep::Hour.begin(NOW);
        for second in 0..150 {
            let record = record(hour + second, 1);
            file.write(HistoryStep::Second, &record).unwrap();
        }
        // What knows more stays: an hour of which most seconds were written before.
        let mut whole = record(hour - 3600, 9999);
        whole.seconds = 3600;
        file.write(HistoryStep::Hour, &whole).unwrap();
        file.write(HistoryStep::Second, &record(hour - 1, 1))
            .unwrap();
        drop(file);
        let (file, origin) = HistoryFile::open(&path).unwrap();
        assert_eq!(origin, HistoryFileOrigin::Continued);
        file.rebuild(hour + 149).unwrap();
        let minute = |number: u64| {
            let found = file.record(HistoryStep::Minute, hour + number * 60);
            found
                .unwrap()
                .map(|found| (found.seconds, requests(Some(found)).unwrap()))
        };
        assert_eq!(minute(0), Some((60, 60)));
        assert_eq!(minute(1), Some((60, 60)));
        assert_eq!(minute(2), Some((30, 30)));
        assert_eq!(minute(3), None);
        let of_hour = |time| requests(file.record(HistoryStep::Hour, time).unwrap());
        assert_eq!(of_hour(hour + 70), Some(150));
        assert_eq!(of_hour(hour - 1), Some(9999));
        assert_eq!(file.file.metadata().unwrap().len(), FILE_BYTES);
        // Only what was written takes room.
        let blocks = std::os::unix::fs::MetadataExt::blocks(&file.file.metadata().unwrap());
        assert!(blocks * 512 < 2_000_000, "{blocks}");
    }

    #[test]
    fn a_damaged_file_loses_what_is_damaged_and_another_one_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let step = HistoryStep::Second;
        let open = || HistoryFile::open(&path).unwrap();
        let time = NOW - NOW % step.slots();
        {
            let (file, _) = open();
            for second in 0..10 {
                file.write(step, &record(time + second, second)).unwrap();
            }
            let at = HEADER_BYTES + step.slot(time + 3) * RECORD;
            file.file.write_all_at(b"damage", at + 100).unwrap();
            // The end is cut off within a record.
            file.file.set_len(HEADER_BYTES + 8 * RECORD + 100).unwrap();
        }
        let (file, origin) = open();
        assert_eq!(origin, HistoryFileOrigin::Continued);
        let mut seen = Vec::new();
        file.each(step, time..time + 10, |found| seen.push(requests(found)))
            .unwrap();
        let expected =
            [0, 1, 2, 10, 4, 5, 6, 7, 10, 10].map(|value| Some(value).filter(|value| *value != 10));
        assert_eq!(seen, expected);
        drop(file);
        for begin in [
            "",
            "a",
            "ApusHist of another version, long enough for a header",
        ] {
            std::fs::write(&path, begin).unwrap();
            let (file, origin) = open();
            let expected = if begin.is_empty() {
                HistoryFileOrigin::New
            } else {
                HistoryFileOrigin::Replaced
            };
            assert_eq!(origin, expected);
            assert_eq!(file.record(step, time).unwrap(), None);
        }
        assert!(HistoryFile::open(folder.path()).is_err());
        assert!(HistoryFile::open(&folder.path().join("none/history")).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_of_a_file_make_it_panic(keeps_header: bool, bytes in prop::collection::vec(any::<u8>(), 0..60_000), now in 0..1_u64 << 40) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("history");
            let mut contents = if keeps_header { header() } else { Vec::new() };
            contents.extend(bytes);
            std::fs::write(&path, contents).unwrap();
            let (file, _) = HistoryFile::open(&path).unwrap();
            file.rebuild(now).unwrap();
            for step in HistoryStep::ALL {
                let mut steps = 0;
                file.each(step, 0..u64::MAX, |_| steps += 1).unwrap();
                prop_assert_eq!(steps, step.slots());
            }
        }
    }
}
