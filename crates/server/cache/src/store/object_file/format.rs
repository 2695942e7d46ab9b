//! The format of an object's file.
//!
//! ```text
//! preamble   the magic bytes, the store, the object, the size of a slot
//! slot       metadata, with a sequence number and a checksum
//! slot       the same; the complete one with the higher number is current
//! body       at the offset in the preamble
//! ```
//!
//! An update of the metadata overwrites the slot that is not current, so that a complete one exists
//! at any moment. The metadata lists the pieces of the body that were written before it, each with
//! its [checksum](PieceChecksums); other bytes have no meaning. A piece is verified before it is
//! sent, unless that was done lately.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;

use super::super::key::{KeyHash, StoreKey};
use super::super::metadata::{NewObject, ObjectMetadata};
use super::checksums::PieceChecksums;
use super::encoding::{RecordReader, put_bytes, put_len};

const MAGIC: &[u8; 8] = b"apusobj2";
const PREAMBLE_BYTES: u64 = 64;
const SLOT_HEAD_BYTES: u64 = 16;

/// The largest valid slot.
const MAX_SLOT_BYTES: u64 = 4 << 20;

/// The layout of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileLayout {
    pub(crate) slot_bytes: u64,
    pub(crate) body_at: u64,
}

/// The metadata of an object on disk.
#[derive(Clone, Debug)]
pub(crate) struct ObjectRecord {
    pub(crate) key: StoreKey,
    pub(crate) new: NewObject,
    pub(crate) generation: u64,
    pub(crate) filled_at: u64,
    pub(crate) stale: bool,
    pub(crate) checksums: PieceChecksums,
}

/// The preamble and the current record of a file.
#[derive(Debug)]
pub(crate) struct ObjectFileHeader {
    pub(crate) record: ObjectRecord,
    pub(crate) layout: FileLayout,
    /// The sequence number of the current slot.
    pub(crate) sequence: u64,
}

impl FileLayout {
    /// The layout for a record of `bytes` that may grow by half and by `more`. A body that is sent
    /// from the file begins on a page.
    pub(crate) fn for_record(bytes: u64, more: u64, body: Option<u64>) -> Self {
        let grown = bytes
            .saturating_add(bytes / 2)
            .saturating_add(256)
            .saturating_add(more);
        let slot_bytes = SLOT_HEAD_BYTES.saturating_add(grown).next_multiple_of(64);
        let end = PREAMBLE_BYTES.saturating_add(slot_bytes.saturating_mul(2));
        // A short body is read into memory and not sent from the file: beginning on a page, it would only take more room.
        let small = body.is_some_and(|body| body <= 64 << 10);
        Self {
            slot_bytes,
            body_at: if small {
                end
            } else {
                end.next_multiple_of(4096)
            },
        }
    }

    /// Whether a file belongs to an object, but has the format of another version of Apus.
    pub(crate) fn is_of_other_version(file: &File) -> bool {
        let mut magic = [0; MAGIC.len()];
        let is_read = file.read_exact_at(&mut magic, 0).is_ok();
        is_read && magic != *MAGIC && magic.starts_with(b"apusobj")
    }

    // There are two slots, and each record is written over the older one. After `kill -9` in the middle of a write the other
    // one is whole, and its checksum says so.
    fn slot_at(self, sequence: u64) -> u64 {
        PREAMBLE_BYTES.saturating_add(self.slot_bytes.saturating_mul(sequence % 2))
    }

    /// The preamble of a file with this layout.
    pub(crate) fn preamble(self, store: u128, hash: KeyHash) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&store.to_le_bytes());
        out.extend_from_slice(&hash.0.to_le_bytes());
        out.extend_from_slice(&self.slot_bytes.to_le_bytes());
        out.extend_from_slice(&self.body_at.to_le_bytes());
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out.resize(64, 0);
        out
    }

    fn read(preamble: &[u8; 64], store: u128, hash: KeyHash) -> Option<Self> {
        let (fields, rest) = preamble.split_at(56);
        let mut rest = RecordReader(rest);
        if rest.u32()? != crc32fast::hash(fields) {
            return None;
        }
        let mut fields = RecordReader(fields.strip_prefix(MAGIC)?);
        // After the journal was lost, no file of the earlier store may be used: what was purged is unknown.
        if fields.u128()? != store || fields.u128()? != hash.0 {
            return None;
        }
        let layout = Self {
            slot_bytes: fields.u64()?,
            body_at: fields.u64()?,
        };
        let end = PREAMBLE_BYTES.saturating_add(layout.slot_bytes.saturating_mul(2));
        (layout.slot_bytes <= MAX_SLOT_BYTES && layout.body_at >= end).then_some(layout)
    }

    /// Writes `record` with the sequence number `sequence`. Returns `false` if it does not fit.
    pub(crate) fn write_slot(self, file: &File, record: &[u8], sequence: u64) -> io::Result<bool> {
        let slot = slot(record, sequence);
        if slot.len() as u64 > self.slot_bytes {
            return Ok(false);
        }
        file.write_all_at(&slot, self.slot_at(sequence))?;
        Ok(true)
    }

    /// The bytes of a new file before its body, with `record` in slot 0.
    pub(crate) fn start(self, preamble: &[u8], record: &[u8]) -> Vec<u8> {
        let mut out = preamble.to_vec();
        out.extend_from_slice(&slot(record, 0));
        out.resize(usize::try_from(self.body_at).unwrap_or_default(), 0);
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

impl ObjectFileHeader {
    /// Reads the preamble and the current record. `None` if it is not a complete file of this store
    /// with the name `hash`.
    pub(crate) fn read(file: &File, store: u128, hash: KeyHash) -> io::Result<Option<Self>> {
        let len = file.metadata()?.len();
        let mut preamble = [0; 64];
        if len < PREAMBLE_BYTES {
            return Ok(None);
        }
        file.read_exact_at(&mut preamble, 0)?;
        let Some(layout) = FileLayout::read(&preamble, store, hash) else {
            return Ok(None);
        };
        if len < layout.body_at {
            return Ok(None);
        }
        let mut newest: Option<(u64, ObjectRecord)> = None;
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

    fn read_slot(slot: &[u8]) -> Option<(u64, ObjectRecord)> {
        let mut reading = RecordReader(slot);
        let sequence = reading.u64()?;
        let len = usize::try_from(reading.u32()?).ok()?;
        let crc = reading.u32()?;
        let record = reading.0.get(..len)?;
        if len == 0 || checksum(sequence, record) != crc {
            return None;
        }
        Some((sequence, ObjectRecord::decode(record)?))
    }

    /// Whether it fits its name, and the file contains the ranges that it lists.
    fn is_sound(&self, len: u64, hash: KeyHash) -> bool {
        let record = &self.record;
        let most = len.saturating_sub(self.layout.body_at);
        let most = record.new.length.map_or(most, |length| length.min(most));
        let end = self.record.checksums.stored().iter().last();
        let end = end.map_or(0, |last| last.end);
        end <= most && record.key.variant(&record.new.secondary) == hash
    }
}

impl ObjectRecord {
    /// Whether the body is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.new
            .length
            .is_some_and(|length| self.checksums.stored().contains(&(0..length)))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let new = &self.new;
        let mut out = Vec::with_capacity(512);
        let numbers = [
            self.generation,
            self.filled_at,
            new.metadata.received,
            new.metadata.expires,
        ];
        for number in numbers {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let flags = [
            new.resumable,
            new.fill_without_readers,
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
            &new.metadata.policy,
            &new.metadata.fields,
        ] {
            put_bytes(&mut out, bytes);
        }
        put_len(&mut out, new.tags.len());
        for tag in &new.tags {
            put_bytes(&mut out, tag);
        }
        self.checksums.encode(&mut out);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = RecordReader(bytes);
        let generation = from.u64()?;
        let filled_at = from.u64()?;
        let received = from.u64()?;
        let expires = from.u64()?;
        let mut flags = [false; 4];
        for flag in &mut flags {
            *flag = from.u8()? != 0;
        }
        let [resumable, fill_without_readers, stale, has_length] = flags;
        let length = from.u64()?;
        let site: Arc<str> = std::str::from_utf8(from.bytes()?).ok()?.into();
        let key = StoreKey::new(&site, from.bytes()?);
        let vary = from.bytes()?.to_vec();
        let secondary = from.bytes()?.to_vec();
        let policy = Bytes::copy_from_slice(from.bytes()?);
        let fields = Bytes::copy_from_slice(from.bytes()?);
        let tags = (0..from.u32()?)
            .map(|_| Some(from.bytes()?.into()))
            .collect::<Option<_>>()?;
        let checksums = PieceChecksums::decode(&mut from)?;
        Some(Self {
            key,
            new: NewObject {
                metadata: ObjectMetadata {
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
                fill_without_readers,
            },
            generation,
            filled_at,
            stale,
            checksums,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_decoded_as_encoded() {
        let record = ObjectRecord {
            key: StoreKey::new(&Arc::from("site"), b"https://a/"),
            new: NewObject {
                metadata: ObjectMetadata {
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
                fill_without_readers: false,
            },
            generation: 1,
            filled_at: 2,
            stale: true,
            checksums: {
                let mut checksums = PieceChecksums::new(Some(100));
                checksums.add(checksums.run(3, [&b"x"[..]]));
                checksums
            },
        };
        let bytes = record.encode();
        let read = ObjectRecord::decode(&bytes).expect("whole");
        assert_eq!(read.encode(), bytes);
        assert_eq!(format!("{read:?}"), format!("{record:?}"));
        for cut in 0..bytes.len() {
            assert!(ObjectRecord::decode(&bytes[..cut]).is_none());
        }
    }
}
