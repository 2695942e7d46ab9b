//! The ranges of a body in an object's file, with the checksum of each piece.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::super::intervals::Intervals;
use super::encoding::RecordReader;

/// The shortest piece, and the number of bytes that are read at once for verification.
const MIN_PIECE_BYTES: u64 = 64 << 10;

/// The most pieces of a body, approximately; a longer body has longer pieces.
const MAX_PIECES: u64 = 4096;

/// The bytes of a record for each piece.
const SUM_BYTES: u64 = 4;

/// The ranges in a file. Pieces begin at multiples of their length, which is the same for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PieceChecksums {
    piece_bytes: u64,
    /// In order, with gaps between them.
    runs: Vec<ChecksumRun>,
}

/// A range without a gap, with the CRC-32 of the present part of each piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChecksumRun {
    start: u64,
    end: u64,
    crcs: Vec<u32>,
}

/// The present part of one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PieceChecksum {
    pub(crate) range: Range<u64>,
    pub(crate) crc: u32,
}

impl PieceChecksums {
    /// The checksums of an empty file for an object of this length.
    pub(crate) fn new(length: Option<u64>) -> Self {
        let mut piece_bytes = MIN_PIECE_BYTES;
        // A checksum for each 64 KiB of a body of many gigabytes would make its record larger than a small object.
        while length.unwrap_or_default().div_ceil(piece_bytes) > MAX_PIECES {
            piece_bytes = piece_bytes.saturating_mul(2);
        }
        Self {
            piece_bytes,
            runs: Vec::new(),
        }
    }

    /// How many bytes of a record the checksums of all the content take.
    pub(crate) fn max_bytes(length: Option<u64>) -> u64 {
        let pieces = length.map_or(MAX_PIECES, |length| {
            length.div_ceil(Self::new(Some(length)).piece_bytes)
        });
        pieces.saturating_mul(SUM_BYTES)
    }

    /// The run of contiguous parts from `start` on.
    pub(crate) fn run<'a>(
        &self,
        start: u64,
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> ChecksumRun {
        ChecksumRun::of(self.piece_bytes, start, parts)
    }

    /// The length of a piece.
    pub(crate) fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    /// Adds a run of [`PieceChecksums::run`] that overlaps no other.
    pub(crate) fn add(&mut self, mut run: ChecksumRun) {
        if run.start >= run.end {
            return;
        }
        let at = self
            .runs
            .partition_point(|existing| existing.end <= run.start);
        let mut from = at;
        if let Some(before) = at.checked_sub(1).and_then(|before| self.runs.get(before))
            && before.end == run.start
        {
            run = before.clone().followed_by(&run, self.piece_bytes);
            from = at.saturating_sub(1);
        }
        let mut to = at;
        if let Some(after) = self.runs.get(at)
            && after.start == run.end
        {
            run = run.followed_by(after, self.piece_bytes);
            to = at.saturating_add(1);
        }
        self.runs.splice(from..to, [run]);
        while self.is_too_fine() {
            self.double();
        }
    }

    /// Whether there are too many pieces, as for a body of undeclared length.
    fn is_too_fine(&self) -> bool {
        let crcs = self.runs.iter().map(|run| run.crcs.len() as u64);
        // A run may begin and end with a partial piece.
        let parts = (self.runs.len() as u64).saturating_mul(2);
        crcs.sum::<u64>() > MAX_PIECES.saturating_add(parts)
    }

    fn double(&mut self) {
        let single = self.piece_bytes;
        self.piece_bytes = single.saturating_mul(2);
        for run in &mut self.runs {
            let pieces: Vec<_> = run.pieces(single).collect();
            run.crcs.clear();
            let mut joined: Option<PieceChecksum> = None;
            for piece in pieces {
                joined = Some(match joined {
                    Some(first) if !piece.range.start.is_multiple_of(self.piece_bytes) => {
                        PieceChecksum {
                            crc: joined_crc(first.crc, piece.crc, &piece.range),
                            range: first.range.start..piece.range.end,
                        }
                    }
                    first => {
                        run.crcs.extend(first.map(|first| first.crc));
                        piece
                    }
                });
            }
            run.crcs.extend(joined.map(|last| last.crc));
        }
    }

    /// The pieces that `range` touches, in order, up to the first gap.
    pub(crate) fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = PieceChecksum> + '_ {
        let covers = |run: &&ChecksumRun| run.start <= range.start && range.start < run.end;
        let run = self.runs.iter().find(covers);
        run.into_iter()
            .flat_map(|run| run.pieces(self.piece_bytes))
            .skip_while(move |piece| piece.range.end <= range.start)
            .take_while(move |piece| piece.range.start < range.end)
    }

    /// All pieces.
    pub(crate) fn all(&self) -> impl Iterator<Item = PieceChecksum> + '_ {
        self.runs
            .iter()
            .flat_map(|run| run.pieces(self.piece_bytes))
    }

    /// The ranges in the file.
    pub(crate) fn stored(&self) -> Intervals {
        self.runs.iter().map(|run| run.start..run.end).collect()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.piece_bytes.to_le_bytes());
        let count = u32::try_from(self.runs.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&count.to_le_bytes());
        for run in &self.runs {
            out.extend_from_slice(&run.start.to_le_bytes());
            out.extend_from_slice(&run.end.to_le_bytes());
            for crc in &run.crcs {
                out.extend_from_slice(&crc.to_le_bytes());
            }
        }
    }

    pub(super) fn decode(from: &mut RecordReader<'_>) -> Option<Self> {
        let piece_bytes = from.u64()?;
        if piece_bytes < MIN_PIECE_BYTES || !piece_bytes.is_power_of_two() {
            return None;
        }
        let mut end_before = None;
        let run = |from: &mut RecordReader<'_>| {
            let (start, end) = (from.u64()?, from.u64()?);
            if start >= end || end_before.is_some_and(|before| start <= before) {
                return None;
            }
            end_before = Some(end);
            let pieces = (end - 1) / piece_bytes - start / piece_bytes + 1;
            // Limited by the bytes that are present, whatever the number is.
            let crcs = (0..pieces).map(|_| from.u32()).collect::<Option<_>>()?;
            Some(ChecksumRun { start, end, crcs })
        };
        let count = from.u32()?;
        let runs = std::iter::repeat_with({
            let mut run = run;
            move || run(from)
        })
        .take(usize::try_from(count).ok()?)
        .collect::<Option<_>>()?;
        Some(Self { piece_bytes, runs })
    }
}

impl ChecksumRun {
    /// The run of contiguous parts from `start` on, with pieces of this length.
    pub(crate) fn of<'a>(
        piece_bytes: u64,
        start: u64,
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> Self {
        let mut end = start;
        let mut crcs = Vec::new();
        let mut hasher = crc32fast::Hasher::new();
        for mut part in parts {
            while !part.is_empty() {
                let room = piece_bytes.saturating_sub(end % piece_bytes);
                let len = part.len().min(usize::try_from(room).unwrap_or(usize::MAX));
                let (taken, rest) = part.split_at(len);
                hasher.update(taken);
                end = end.saturating_add(taken.len() as u64);
                part = rest;
                if end.is_multiple_of(piece_bytes) {
                    crcs.push(std::mem::take(&mut hasher).finalize());
                }
            }
        }
        if end > start && !end.is_multiple_of(piece_bytes) {
            crcs.push(hasher.finalize());
        }
        Self { start, end, crcs }
    }

    /// This run and the one that begins where it ends.
    fn followed_by(mut self, next: &Self, piece_bytes: u64) -> Self {
        let mut crcs = next.crcs.iter().copied();
        if !self.end.is_multiple_of(piece_bytes)
            && let Some(last) = self.crcs.last_mut()
            && let (Some(first), Some(piece)) = (crcs.next(), next.pieces(piece_bytes).next())
        {
            *last = joined_crc(*last, first, &piece.range);
        }
        self.crcs.extend(crcs);
        self.end = next.end;
        self
    }

    fn pieces(&self, piece_bytes: u64) -> impl Iterator<Item = PieceChecksum> + '_ {
        let mut start = self.start;
        self.crcs.iter().map(move |crc| {
            let past = (start / piece_bytes)
                .saturating_add(1)
                .saturating_mul(piece_bytes);
            let range = start..past.min(self.end);
            start = range.end;
            PieceChecksum { range, crc: *crc }
        })
    }
}

/// The CRC-32 of a part and of the one that follows it, at `second_range`.
fn joined_crc(first: u32, second: u32, second_range: &Range<u64>) -> u32 {
    let len = second_range.end.saturating_sub(second_range.start);
    let mut hasher = crc32fast::Hasher::new_with_initial(first);
    hasher.combine(&crc32fast::Hasher::new_with_initial_len(second, len));
    hasher.finalize()
}

/// A verified range up to `until`; the bytes of its last piece from `from` on have this CRC-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckedRange {
    from: u64,
    pub(crate) until: u64,
    crc: u32,
}

impl CheckedRange {
    /// A range up to `until`. If a piece begins before, all of it is read again.
    pub(crate) fn up_to(until: u64) -> Self {
        Self {
            from: until,
            until,
            crc: 0,
        }
    }

    /// The first byte of `piece` that is not verified.
    pub(crate) fn next_byte(&self, piece: &PieceChecksum) -> u64 {
        let has_grown = piece.range.start == self.from && self.until <= piece.range.end;
        if has_grown {
            self.until
        } else {
            piece.range.start
        }
    }

    /// Verifies the next pieces of a file whose body begins at `body_at`. `None` if they are
    /// damaged or unreadable. Only the new part of a piece that has grown is read.
    pub(crate) fn next(self, file: &File, body_at: u64, pieces: &[PieceChecksum]) -> Option<Self> {
        let mut checked = self;
        let mut buffer = Vec::new();
        for piece in pieces {
            let PieceChecksum { range, crc } = piece;
            let mut at = checked.next_byte(piece);
            let known = if at > range.start { checked.crc } else { 0 };
            let mut hasher = crc32fast::Hasher::new_with_initial(known);
            while at < range.end {
                let len = range.end.saturating_sub(at).min(MIN_PIECE_BYTES);
                buffer.resize(usize::try_from(len).ok()?, 0);
                file.read_exact_at(&mut buffer, body_at.saturating_add(at))
                    .ok()?;
                hasher.update(&buffer);
                at = at.saturating_add(len);
            }
            if hasher.finalize() != *crc {
                return None;
            }
            checked = Self {
                from: range.start,
                until: range.end,
                crc: *crc,
            };
        }
        Some(checked)
    }

    /// Reads contiguous pieces; `None` if they are damaged.
    pub(crate) fn read(
        file: &File,
        body_at: u64,
        pieces: &[PieceChecksum],
    ) -> io::Result<Option<Vec<u8>>> {
        let mut all = Vec::new();
        for PieceChecksum { range, crc } in pieces {
            let start = all.len();
            let len =
                usize::try_from(range.end.saturating_sub(range.start)).map_err(io::Error::other)?;
            all.resize(start.saturating_add(len), 0);
            let piece = all.get_mut(start..).unwrap_or_default();
            file.read_exact_at(piece, body_at.saturating_add(range.start))?;
            if crc32fast::hash(piece) != *crc {
                return Ok(None);
            }
        }
        Ok(Some(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = 64 << 10;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
    }

    /// All of `bytes` in one run.
    fn whole(bytes: &[u8]) -> PieceChecksums {
        let mut checksums = PieceChecksums::new(Some(bytes.len() as u64));
        let run = checksums.run(0, [bytes]);
        checksums.add(run);
        checksums
    }

    #[test]
    fn adjacent_runs_and_their_partial_pieces_are_joined() {
        for len in [
            1,
            PIECE - 1,
            PIECE,
            PIECE + 1,
            3 * PIECE - 1,
            3 * PIECE,
            3 * PIECE + 1,
        ] {
            let bytes = bytes(len);
            let cut = |sixth: usize| len * sixth / 6;
            let mut checksums = PieceChecksums::new(Some(len as u64));
            for sixth in [1, 3, 5, 0, 2, 4] {
                let part = &bytes[cut(sixth)..cut(sixth + 1)];
                let (one, other) = part.split_at(part.len() / 3);
                let run = checksums.run(cut(sixth) as u64, [one, other]);
                checksums.add(run);
            }
            assert_eq!(checksums, whole(&bytes), "{len}");
            let pieces: Vec<_> = checksums.all().collect();
            assert_eq!(pieces.len(), len.div_ceil(PIECE), "{len}");
            for PieceChecksum { range, crc } in pieces {
                let piece = &bytes[range.start as usize..range.end as usize];
                assert_eq!(crc, crc32fast::hash(piece), "{len} {range:?}");
            }
        }
    }

    #[test]
    fn pieces_grow_if_there_are_too_many() {
        let most = MAX_PIECES as usize;
        assert_eq!(
            PieceChecksums::new(Some(MAX_PIECES << 16)).piece_bytes,
            64 << 10
        );
        assert_eq!(
            PieceChecksums::new(Some((MAX_PIECES << 16) + 1)).piece_bytes,
            128 << 10
        );
        let mut checksums = PieceChecksums::new(None);
        // The ranges begin in the middle of a piece, and have a gap.
        for (start, crc) in (1..most as u64 + 2).map(|piece| (piece << 16, 7)) {
            checksums.add(ChecksumRun {
                start,
                end: start + (1 << 16),
                crcs: vec![crc],
            });
        }
        assert_eq!(checksums.piece_bytes, 64 << 10);
        for piece in most as u64 + 2..most as u64 + 4 {
            let run = checksums.run(piece << 16, [&vec![7; PIECE][..]]);
            checksums.add(run);
        }
        assert_eq!(checksums.piece_bytes, 128 << 10);
        let last = checksums.all().last().unwrap();
        assert_eq!(last.range, (most as u64 + 2) << 16..(most as u64 + 4) << 16);
        assert_eq!(last.crc, crc32fast::hash(&vec![7; 2 * PIECE]));
        assert_eq!(checksums.all().next().unwrap().range, 1 << 16..2 << 16);
    }

    #[test]
    fn checksums_are_decoded_as_encoded() {
        let mut checksums = whole(&bytes(2 * PIECE + 1));
        let run = checksums.run(5 * PIECE as u64 + 7, [&bytes(PIECE)[..]]);
        checksums.add(run);
        let mut out = Vec::new();
        checksums.encode(&mut out);
        assert_eq!(
            PieceChecksums::decode(&mut RecordReader(&out)),
            Some(checksums)
        );
        for len in 0..out.len() {
            assert_eq!(
                PieceChecksums::decode(&mut RecordReader(&out[..len])),
                None,
                "{len}"
            );
        }
    }

    #[test]
    fn only_the_new_part_of_a_grown_piece_is_read() {
        let file = tempfile::tempfile().unwrap();
        let bytes = bytes(PIECE);
        file.write_all_at(&bytes, 10).unwrap();
        let mut checked = CheckedRange::default();
        for end in [1, 100, PIECE - 1, PIECE] {
            let pieces: Vec<_> = whole(&bytes[..end]).all().collect();
            checked = checked.next(&file, 10, &pieces).unwrap();
            assert_eq!(checked.until, end as u64);
            // Verified bytes are not read again.
            file.write_all_at(&[bytes[0] ^ 1], 10).unwrap();
        }
        let pieces: Vec<_> = whole(&bytes).all().collect();
        assert_eq!(CheckedRange::default().next(&file, 10, &pieces), None);
        assert_eq!(CheckedRange::read(&file, 10, &pieces).unwrap(), None);
        file.write_all_at(&bytes, 10).unwrap();
        assert_eq!(CheckedRange::read(&file, 10, &pieces).unwrap(), Some(bytes));
    }
}
