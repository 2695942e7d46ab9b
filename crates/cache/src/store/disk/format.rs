//! The form of an object's file.
//!
//! ```text
//! preamble   what kind of file this is, of which store and object, how large a slot is
//! slot       metadata, with a sequence number and a checksum
//! slot       the same; the one with the higher number that is whole counts
//! content    at the place that the preamble says
//! ```
//!
//! Metadata changes by writing the slot that does not count, so that there is a whole one at any
//! moment. It names the pieces of content that were written before it, each with its [checksum](Sums);
//! bytes outside of them mean nothing. Whoever reads a piece compares it first.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;

use super::super::key::{Hash, Key};
use super::super::object::{Head, NewObject};
use super::sums::Sums;

const MAGIC: &[u8; 8] = b"apusobj2";
const PREAMBLE_BYTES: u64 = 64;
const SLOT_HEAD_BYTES: u64 = 16;

/// No slot is larger: it would not be metadata.
const MOST_SLOT_BYTES: u64 = 4 << 20;

/// Where things are in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) slot_bytes: u64,
    pub(crate) content_at: u64,
}

/// What is written about an object.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) key: Key,
    pub(crate) new: NewObject,
    pub(crate) generation: u64,
    pub(crate) filled_at: u64,
    pub(crate) stale: bool,
    pub(crate) sums: Sums,
}

/// A file's record, and where the next one goes.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) record: Record,
    pub(crate) layout: Layout,
    /// The number of the slot that counts.
    pub(crate) sequence: u64,
}

impl Layout {
    /// For a record that takes `bytes` now, with room for it to grow and for `more`. Content that is
    /// served from the file begins on a page.
    pub(crate) fn for_record(bytes: u64, more: u64, content: Option<u64>) -> Self {
        let grown = bytes
            .saturating_add(bytes / 2)
            .saturating_add(256)
            .saturating_add(more);
        let slot_bytes = SLOT_HEAD_BYTES.saturating_add(grown).next_multiple_of(64);
        let end = PREAMBLE_BYTES.saturating_add(slot_bytes.saturating_mul(2));
        let small = content.is_some_and(|content| content <= 64 << 10);
        Self {
            slot_bytes,
            content_at: if small {
                end
            } else {
                end.next_multiple_of(4096)
            },
        }
    }

    /// Whether a file is of an object, and was written by a version of Apus with another form for it.
    pub(crate) fn is_of_other_version(file: &File) -> bool {
        let mut magic = [0; MAGIC.len()];
        let is_read = file.read_exact_at(&mut magic, 0).is_ok();
        is_read && magic != *MAGIC && magic.starts_with(b"apusobj")
    }

    fn slot_at(self, sequence: u64) -> u64 {
        PREAMBLE_BYTES.saturating_add(self.slot_bytes.saturating_mul(sequence % 2))
    }

    /// The preamble of a file with this layout.
    pub(crate) fn preamble(self, store: u128, hash: Hash) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&store.to_le_bytes());
        out.extend_from_slice(&hash.0.to_le_bytes());
        out.extend_from_slice(&self.slot_bytes.to_le_bytes());
        out.extend_from_slice(&self.content_at.to_le_bytes());
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out.resize(64, 0);
        out
    }

    fn read(preamble: &[u8; 64], store: u128, hash: Hash) -> Option<Self> {
        let (content, rest) = preamble.split_at(56);
        let mut rest = Reading(rest);
        if rest.u32()? != crc32fast::hash(content) {
            return None;
        }
        let mut content = Reading(content.strip_prefix(MAGIC)?);
        if content.u128()? != store || content.u128()? != hash.0 {
            return None;
        }
        let layout = Self {
            slot_bytes: content.u64()?,
            content_at: content.u64()?,
        };
        let end = PREAMBLE_BYTES.saturating_add(layout.slot_bytes.saturating_mul(2));
        (layout.slot_bytes <= MOST_SLOT_BYTES && layout.content_at >= end).then_some(layout)
    }

    /// Writes `record` as number `sequence`. `false` when it does not fit any more.
    pub(crate) fn write_slot(self, file: &File, record: &[u8], sequence: u64) -> io::Result<bool> {
        let slot = slot(record, sequence);
        if slot.len() as u64 > self.slot_bytes {
            return Ok(false);
        }
        file.write_all_at(&slot, self.slot_at(sequence))?;
        Ok(true)
    }

    /// The bytes of a new file before its content, with `record` as number 0.
    pub(crate) fn start(self, preamble: &[u8], record: &[u8]) -> Vec<u8> {
        let mut out = preamble.to_vec();
        out.extend_from_slice(&slot(record, 0));
        out.resize(usize::try_from(self.content_at).unwrap_or_default(), 0);
        out
    }
}

fn slot(record: &[u8], sequence: u64) -> Vec<u8> {
    let mut slot = Vec::with_capacity(record.len().saturating_add(16));
    slot.extend_from_slice(&sequence.to_le_bytes());
    slot.extend_from_slice(
        &u32::try_from(record.len())
            .unwrap_or(u32::MAX)
            .to_le_bytes(),
    );
    slot.extend_from_slice(&checksum(sequence, record).to_le_bytes());
    slot.extend_from_slice(record);
    slot
}

fn checksum(sequence: u64, record: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&sequence.to_le_bytes());
    hasher.update(record);
    hasher.finalize()
}

impl Opened {
    /// Reads what `file` says about itself. `None` when it is not a whole file of this store that
    /// has the name `hash`.
    pub(crate) fn read(file: &File, store: u128, hash: Hash) -> io::Result<Option<Self>> {
        let len = file.metadata()?.len();
        let mut preamble = [0; 64];
        if len < PREAMBLE_BYTES {
            return Ok(None);
        }
        file.read_exact_at(&mut preamble, 0)?;
        let Some(layout) = Layout::read(&preamble, store, hash) else {
            return Ok(None);
        };
        if len < layout.content_at {
            return Ok(None);
        }
        let mut newest: Option<(u64, Record)> = None;
        let mut slot = vec![0; usize::try_from(layout.slot_bytes).unwrap_or_default()];
        for place in 0..2 {
            file.read_exact_at(&mut slot, layout.slot_at(place))?;
            let Some((sequence, record)) = Self::read_slot(&slot) else {
                continue;
            };
            if newest.as_ref().is_none_or(|(held, _)| *held < sequence) {
                newest = Some((sequence, record));
            }
        }
        let opened = newest.map(|(sequence, record)| Self {
            record,
            layout,
            sequence,
        });
        Ok(opened.filter(|opened| opened.is_sound(len, hash)))
    }

    fn read_slot(slot: &[u8]) -> Option<(u64, Record)> {
        let mut reading = Reading(slot);
        let sequence = reading.u64()?;
        let len = usize::try_from(reading.u32()?).ok()?;
        let crc = reading.u32()?;
        let record = reading.0.get(..len)?;
        if len == 0 || checksum(sequence, record) != crc {
            return None;
        }
        Some((sequence, Record::decode(record)?))
    }

    /// Whether it fits its name, and the file holds what it promises.
    fn is_sound(&self, len: u64, hash: Hash) -> bool {
        let record = &self.record;
        let most = len.saturating_sub(self.layout.content_at);
        let most = record.new.length.map_or(most, |length| length.min(most));
        let end = self.record.sums.stored().iter().last();
        let end = end.map_or(0, |last| last.end);
        end <= most && record.key.variant(&record.new.secondary) == hash
    }
}

impl Record {
    /// Whether all of it is.
    pub(crate) fn is_complete(&self) -> bool {
        self.new
            .length
            .is_some_and(|length| self.sums.stored().contains(&(0..length)))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let new = &self.new;
        let mut out = Vec::with_capacity(512);
        let numbers = [
            self.generation,
            self.filled_at,
            new.head.received,
            new.head.expires,
        ];
        for number in numbers {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let flags = [
            new.resumable,
            new.fill_unread,
            self.stale,
            new.length.is_some(),
        ];
        out.extend(flags.map(u8::from));
        out.extend_from_slice(&new.length.unwrap_or_default().to_le_bytes());
        put_bytes(&mut out, self.key.site().as_bytes());
        put_bytes(&mut out, self.key.bytes());
        for bytes in [
            &new.vary[..],
            &new.secondary,
            &new.head.policy,
            &new.head.fields,
        ] {
            put_bytes(&mut out, bytes);
        }
        put_len(&mut out, new.tags.len());
        for tag in &new.tags {
            put_bytes(&mut out, tag);
        }
        self.sums.encode(&mut out);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reading(bytes);
        let generation = from.u64()?;
        let filled_at = from.u64()?;
        let received = from.u64()?;
        let expires = from.u64()?;
        let mut flags = [false; 4];
        for flag in &mut flags {
            *flag = from.u8()? != 0;
        }
        let [resumable, fill_unread, stale, has_length] = flags;
        let length = from.u64()?;
        let site: Arc<str> = std::str::from_utf8(from.bytes()?).ok()?.into();
        let key = Key::new(&site, from.bytes()?);
        let vary = from.bytes()?.to_vec();
        let secondary = from.bytes()?.to_vec();
        let policy = Bytes::copy_from_slice(from.bytes()?);
        let fields = Bytes::copy_from_slice(from.bytes()?);
        let tags = (0..from.u32()?)
            .map(|_| Some(from.bytes()?.into()))
            .collect::<Option<_>>()?;
        let sums = Sums::decode(&mut from)?;
        Some(Self {
            key,
            new: NewObject {
                head: Head {
                    policy,
                    fields,
                    expires,
                    received,
                },
                vary,
                secondary,
                tags,
                length: has_length.then_some(length),
                resumable,
                fill_unread,
            },
            generation,
            filled_at,
            stale,
            sums,
        })
    }
}

/// Appends `bytes` with their length before them.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
}

/// Takes numbers and bytes off the front; `None` when there are not enough.
pub(super) struct Reading<'a>(pub(super) &'a [u8]);

impl<'a> Reading<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn u128(&mut self) -> Option<u128> {
        self.take().map(u128::from_le_bytes)
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = Record {
            key: Key::new(&Arc::from("site"), b"https://a/"),
            new: NewObject {
                head: Head {
                    policy: Bytes::from_static(b"policy"),
                    fields: Bytes::from_static(b"a: b\r\n"),
                    expires: 7,
                    received: 5,
                },
                vary: b"accept".to_vec(),
                secondary: b"x".to_vec(),
                tags: vec![(*b"one").into(), (*b"two").into()],
                length: Some(100),
                resumable: true,
                fill_unread: false,
            },
            generation: 1,
            filled_at: 2,
            stale: true,
            sums: {
                let mut sums = Sums::new(Some(100));
                sums.add(sums.run(3, [&b"x"[..]]));
                sums
            },
        };
        let bytes = record.encode();
        let read = Record::decode(&bytes).expect("whole");
        assert_eq!(read.encode(), bytes);
        assert_eq!(format!("{read:?}"), format!("{record:?}"));
        for cut in 0..bytes.len() {
            assert!(Record::decode(&bytes[..cut]).is_none());
        }
    }
}
