//! A journal of the purges that may still apply to files on disk, written before a purge is
//! confirmed.
//!
//! The journal also contains the identity of the store, which every file of an object repeats. If
//! the journal is lost or damaged, the purges are unknown: the store gets a new identity, so that
//! no file of the old one is used.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use apus_tokens::random_bytes;

use super::super::key::KeyHash;
use super::super::object_file::{RecordReader, put_bytes};
use super::super::purge::{PurgeRequest, PurgeSelector, Purges};
use super::directory::Directory;

const FILE: &str = "purges";
const TEMPORARY: &str = "purges.new";
const MAGIC: &[u8; 8] = b"apuspur1";
const HEAD_BYTES: u64 = 36;

/// An open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    /// Where the next record goes.
    end: u64,
    store: u128,
    /// Its records, for writing it again without the retired ones.
    records: Vec<(u64, PurgeRequest)>,
}

impl Journal {
    /// Opens or creates the journal in `directory`, and returns the purges in it.
    pub(crate) fn open(directory: &Directory) -> io::Result<(Self, Purges)> {
        let read = match directory.open_in_root(FILE)? {
            Some(mut file) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes)?;
                read(&bytes).map(|read| (file, read))
            }
            None => None,
        };
        let Some((file, contents)) = read else {
            let purges = Purges::new(0);
            return Ok((
                Self::write_new(directory, new_identity()?, 0, Vec::new())?,
                purges,
            ));
        };
        // The next record is written over one that was cut off. The rest of a longer one would stay behind it, and make the
        // whole file unreadable.
        file.set_len(contents.end)?;
        let purges = Purges::new(contents.current);
        for (number, purge) in &contents.records {
            purges.restore(purge, *number);
        }
        let journal = Self {
            file,
            end: contents.end,
            store: contents.store,
            records: contents.records,
        };
        Ok((journal, purges))
    }

    /// The identity of the store.
    pub(crate) fn store(&self) -> u128 {
        self.store
    }

    /// Records that the numbers of later purges are greater than `number`.
    pub(crate) fn begin_at(&mut self, directory: &Directory, number: u64) -> io::Result<()> {
        let records = std::mem::take(&mut self.records);
        *self = Self::write_new(directory, self.store, number, records)?;
        Ok(())
    }

    /// Records a purge durably.
    pub(crate) fn append(&mut self, number: u64, purge: &PurgeRequest) -> io::Result<()> {
        let record = encode(number, purge);
        let written = self.file.write_all_at(&record, self.end);
        if let Err(error) = written.and_then(|()| self.file.sync_data()) {
            // A partial record is harmless at the end, but not before another one.
            self.file.set_len(self.end)?;
            return Err(error);
        }
        self.end = self.end.saturating_add(record.len() as u64);
        self.records.push((number, purge.clone()));
        Ok(())
    }

    /// Removes the purges up to `number`.
    pub(crate) fn retire(&mut self, directory: &Directory, number: u64) -> io::Result<()> {
        let current = self.records.iter().map(|(number, _)| *number).max();
        let current = current.unwrap_or_default().max(number);
        let mut records = self.records.clone();
        records.retain(|(held, _)| *held > number);
        if records.len() < self.records.len() {
            *self = Self::write_new(directory, self.store, current, records)?;
        }
        Ok(())
    }

    fn write_new(
        directory: &Directory,
        store: u128,
        current: u64,
        records: Vec<(u64, PurgeRequest)>,
    ) -> io::Result<Self> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&store.to_le_bytes());
        bytes.extend_from_slice(&current.to_le_bytes());
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        for (number, purge) in &records {
            bytes.extend(encode(*number, purge));
        }
        directory.remove_temporary(TEMPORARY)?;
        let file = directory.create_temporary(TEMPORARY)?;
        file.write_all_at(&bytes, 0)?;
        file.sync_all()?;
        directory.publish_in_root(TEMPORARY, FILE)?;
        Ok(Self {
            file,
            end: bytes.len() as u64,
            store,
            records,
        })
    }
}

struct JournalContents {
    store: u128,
    /// The number of the last purge.
    current: u64,
    records: Vec<(u64, PurgeRequest)>,
    end: u64,
}

/// Parses a journal; `None` if it is damaged. A record that is cut off at the end was never
/// confirmed.
fn read(bytes: &[u8]) -> Option<JournalContents> {
    let head = bytes.get(..HEAD_BYTES as usize)?;
    let (head, crc) = head.split_last_chunk::<4>()?;
    if crc32fast::hash(head) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut head = RecordReader(head.strip_prefix(MAGIC)?);
    let mut contents = JournalContents {
        store: head.u128()?,
        current: head.u64()?,
        records: Vec::new(),
        end: HEAD_BYTES,
    };
    let mut rest = RecordReader(bytes.get(HEAD_BYTES as usize..)?);
    while let Some(crc) = rest.u32() {
        let Some(record) = rest.bytes() else {
            break;
        };
        if crc32fast::hash(record) != crc {
            return None;
        }
        let (number, purge) = decode(record)?;
        contents.current = contents.current.max(number);
        contents.records.push((number, purge));
        contents.end = contents
            .end
            .saturating_add(record.len() as u64)
            .saturating_add(8);
    }
    Some(contents)
}

fn encode(number: u64, purge: &PurgeRequest) -> Vec<u8> {
    let mut record = number.to_le_bytes().to_vec();
    let (kind, bytes): (u8, &[u8]) = match &purge.selector {
        PurgeSelector::All => (0, b""),
        PurgeSelector::Key(bytes) => (1, bytes),
        PurgeSelector::Prefix(bytes) => (2, bytes),
        PurgeSelector::Tag(bytes) => (3, bytes),
    };
    record.extend([kind, u8::from(purge.soft), u8::from(purge.site.is_some())]);
    put_bytes(
        &mut record,
        purge.site.as_deref().unwrap_or_default().as_bytes(),
    );
    put_bytes(&mut record, bytes);
    let mut out = crc32fast::hash(&record).to_le_bytes().to_vec();
    put_bytes(&mut out, &record);
    out
}

fn decode(record: &[u8]) -> Option<(u64, PurgeRequest)> {
    let mut from = RecordReader(record);
    let number = from.u64()?;
    let (kind, soft, of_site) = (from.u8()?, from.u8()? != 0, from.u8()? != 0);
    let site = std::str::from_utf8(from.bytes()?).ok()?;
    let bytes = from.bytes()?;
    let selector = match kind {
        0 => PurgeSelector::All,
        1 => PurgeSelector::Key(bytes.into()),
        2 => PurgeSelector::Prefix(bytes.into()),
        3 => PurgeSelector::Tag(bytes.into()),
        _ => return None,
    };
    let site = of_site.then(|| site.into());
    Some((
        number,
        PurgeRequest {
            site,
            selector,
            soft,
        },
    ))
}

fn new_identity() -> io::Result<u128> {
    Ok(KeyHash::of(&[&random_bytes::<32>()?]).0)
}
