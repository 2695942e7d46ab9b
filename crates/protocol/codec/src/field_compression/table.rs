//! The dynamic table (RFC 7541 sections 2.3.2 and 4, RFC 9204 section 3.2).

/// The entries of a dynamic table; the newest has index 0.
///
/// One buffer holds all names and values and grows with them, so that a connection with few fields takes
/// little memory. Evicted entries stay at the front of the buffer until a single move of the rest frees
/// enough. The buffer is at most one and a half times as long as the table's size, and the list of
/// entries takes at most that size: each entry counts 32 bytes more than its strings, and takes 16 there.
#[derive(Debug)]
pub struct DynamicTable {
    bytes: Vec<u8>,
    /// The positions of the entries, the oldest first. Entries before `first` are evicted.
    spans: Vec<EntrySpan>,
    /// A number for each of `spans` that the owner of the table chose.
    marks: Vec<u32>,
    first: usize,
    size: usize,
    max_size: usize,
}

#[derive(Clone, Copy, Debug)]
struct EntrySpan {
    at: u32,
    name: u32,
    value: u32,
}

impl EntrySpan {
    fn start(self) -> usize {
        self.at as usize
    }

    fn middle(self) -> usize {
        self.start().saturating_add(self.name as usize)
    }

    fn end(self) -> usize {
        self.middle().saturating_add(self.value as usize)
    }

    fn size(self) -> usize {
        entry_size(self.name as usize, self.value as usize)
    }
}

/// The size of an entry (section 4.1).
pub fn entry_size(name: usize, value: usize) -> usize {
    name.saturating_add(value).saturating_add(32)
}

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
pub struct TableEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The number that the owner of the table chose.
    pub mark: u32,
}

impl DynamicTable {
    /// An empty table, which allocates no memory.
    pub fn new(max_size: usize) -> Self {
        Self {
            bytes: Vec::new(),
            spans: Vec::new(),
            marks: Vec::new(),
            first: 0,
            size: 0,
            max_size,
        }
    }

    /// The limit of the entries' sizes.
    #[inline]
    pub fn max_size(&self) -> usize {
        self.max_size
    }

    /// How many entries there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len().saturating_sub(self.first)
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of the oldest entries have to go before entries of `size` bytes fit into `max_size` bytes; `None`
    /// if they never do.
    pub fn evictions(&self, size: usize, max_size: usize) -> Option<usize> {
        let left = max_size.checked_sub(size)?;
        let mut used = self.size;
        let mut spans = self.spans.get(self.first..).unwrap_or_default().iter();
        let mut count = 0_usize;
        while used > left {
            used = used.saturating_sub(spans.next()?.size());
            count = count.saturating_add(1);
        }
        Some(count)
    }

    /// Changes the size and evicts entries beyond it (section 4.3).
    pub fn set_max_size(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict(0);
        if self.spans.is_empty() {
            *self = Self::new(max_size);
        }
    }

    /// The entry at an index, 0 for the newest.
    #[inline]
    pub fn get(&self, index: usize) -> Option<TableEntry<'_>> {
        let at = self.spans.len().checked_sub(index)?.checked_sub(1)?;
        if at < self.first {
            return None;
        }
        self.at(at)
    }

    #[inline]
    fn at(&self, at: usize) -> Option<TableEntry<'_>> {
        let (span, mark) = (*self.spans.get(at)?, *self.marks.get(at)?);
        Some(TableEntry {
            name: self.bytes.get(span.start()..span.middle())?,
            value: self.bytes.get(span.middle()..span.end())?,
            mark,
        })
    }

    /// The index of an entry with this mark, this value and, unless the mark includes it, this name.
    #[inline]
    pub fn find(&self, mark: u32, name: Option<&[u8]>, value: &[u8]) -> Option<usize> {
        let mut from = self.first;
        loop {
            // Numbers are compared, eight at a time, and strings only for the one that matches: the table is searched
            // for nearly each field of a response.
            let at = position(self.marks.get(from..)?, mark)?.checked_add(from)?;
            let entry = self.at(at)?;
            if entry.value == value && name.is_none_or(|name| entry.name == name) {
                return self.index(at);
            }
            from = at.saturating_add(1);
        }
    }

    /// The index of the newest entry with this name.
    pub fn find_name(&self, name: &[u8]) -> Option<usize> {
        let spans = self.spans.get(self.first..)?;
        let at = spans.iter().rposition(|span| {
            span.name as usize == name.len()
                && self.bytes.get(span.start()..span.middle()) == Some(name)
        })?;
        self.index(at.saturating_add(self.first))
    }

    fn index(&self, at: usize) -> Option<usize> {
        self.spans.len().checked_sub(at)?.checked_sub(1)
    }

    /// Adds an entry and evicts the oldest ones (section 4.4). An entry that is larger than the table only
    /// empties it.
    pub fn insert(&mut self, name: &[u8], value: &[u8], mark: u32) {
        let size = entry_size(name.len(), value.len());
        self.evict(size);
        let (Ok(name_len), Ok(value_len)) = (u32::try_from(name.len()), u32::try_from(value.len()))
        else {
            return;
        };
        if size > self.max_size {
            return;
        }
        self.reserve(name.len().saturating_add(value.len()));
        let Ok(at) = u32::try_from(self.bytes.len()) else {
            return;
        };
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.spans.push(EntrySpan {
            at,
            name: name_len,
            value: value_len,
        });
        self.marks.push(mark);
        self.size = self.size.saturating_add(size);
    }

    /// Evicts the oldest entries until `size` more fits, or the table is empty.
    fn evict(&mut self, size: usize) {
        while self.size.saturating_add(size) > self.max_size {
            let Some(span) = self.spans.get(self.first) else {
                break;
            };
            self.size = self.size.saturating_sub(span.size());
            self.first = self.first.saturating_add(1);
        }
        if self.first == self.spans.len() {
            self.bytes.clear();
            self.spans.clear();
            self.marks.clear();
            self.first = 0;
        }
    }

    /// Reserves space for an entry of this many bytes. Frees evicted entries once they take too much space.
    fn reserve(&mut self, bytes: usize) {
        const MIN_BYTES: usize = 256;
        const MIN_ENTRIES: usize = 8;
        let end = self.bytes.len().saturating_add(bytes);
        if end <= self.bytes.capacity() && self.spans.len() < self.spans.capacity() {
            return;
        }
        let max_bytes = self.max_size.saturating_add(self.max_size / 2);
        let evicted = self.spans.get(self.first).map_or(0, |span| span.start());
        // Moved only once half of the buffer is of evicted entries, so that each byte is moved a bounded number of
        // times.
        if end > max_bytes || evicted > end / 2 || self.first >= self.spans.len().div_ceil(2) {
            self.drop_evicted(evicted);
        }
        if self.spans.capacity() == 0 {
            self.spans.reserve_exact(MIN_ENTRIES);
            self.marks.reserve_exact(MIN_ENTRIES);
        }
        let end = self.bytes.len().saturating_add(bytes);
        if end > self.bytes.capacity() {
            let capacity = end.saturating_mul(2).max(MIN_BYTES).min(max_bytes).max(end);
            self.bytes
                .reserve_exact(capacity.saturating_sub(self.bytes.len()));
        }
    }

    /// Moves the remaining entries to the front, over the `evicted` bytes.
    fn drop_evicted(&mut self, evicted: usize) {
        self.bytes.drain(..evicted.min(self.bytes.len()));
        self.spans.drain(..self.first.min(self.spans.len()));
        self.marks.drain(..self.first.min(self.marks.len()));
        self.first = 0;
        let evicted = u32::try_from(evicted).unwrap_or(u32::MAX);
        for span in &mut self.spans {
            span.at = span.at.saturating_sub(evicted);
        }
    }
}

/// The position of the first of `marks` that equals `mark`.
#[inline]
fn position(marks: &[u32], mark: u32) -> Option<usize> {
    /// How many marks are compared at once.
    const LANES: usize = 8;
    let (chunks, _) = marks.as_chunks::<LANES>();
    let skipped = chunks
        .iter()
        .take_while(|chunk| chunk.iter().fold(true, |is, other| is & (*other != mark)))
        .count()
        .saturating_mul(LANES);
    let rest = marks.get(skipped..)?;
    rest.iter()
        .position(|other| *other == mark)?
        .checked_add(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 4096;

    fn memory(table: &DynamicTable) -> (usize, usize) {
        let lists = table.spans.capacity() * size_of::<EntrySpan>() + table.marks.capacity() * 4;
        (table.bytes.capacity(), lists)
    }

    #[test]
    fn allocates_memory_as_it_fills() {
        let mut table = DynamicTable::new(SIZE);
        assert_eq!(memory(&table), (0, 0));
        table.insert(b"content-type", b"text/html", 1);
        let (bytes, lists) = memory(&table);
        assert!(bytes + lists <= 512, "{bytes} {lists}");
        table.set_max_size(0);
        assert_eq!(memory(&table), (0, 0));
    }

    #[test]
    fn memory_stays_within_its_limit() {
        for len in [0, 1, 10, 100, 1000, 1400, 2000, 4000] {
            let mut table = DynamicTable::new(SIZE);
            let value = vec![b'x'; len];
            for mark in 0..1000 {
                table.insert(b"name", &value[..len - (mark as usize % 7).min(len)], mark);
                let (bytes, lists) = memory(&table);
                assert!(bytes <= SIZE + SIZE / 2, "{bytes} at {len}");
                assert!(lists <= SIZE, "{lists} at {len}");
                assert!(table.size <= SIZE);
            }
        }
    }

    #[test]
    fn keeps_the_newest_entries_in_order() {
        let mut table = DynamicTable::new(SIZE);
        for mark in 0..5000_u32 {
            let value = mark.to_string().repeat(1 + mark as usize % 40);
            table.insert(b"name", value.as_bytes(), mark);
            let mut size = 0;
            for index in 0.. {
                let Some(entry) = table.get(index) else {
                    break;
                };
                let expected = mark - u32::try_from(index).unwrap();
                let value = expected.to_string().repeat(1 + expected as usize % 40);
                assert_eq!((entry.name, entry.mark), (&b"name"[..], expected));
                assert_eq!(entry.value, value.as_bytes());
                assert_eq!(
                    table.find(expected, Some(b"name"), entry.value),
                    Some(index)
                );
                size += entry_size(4, value.len());
            }
            assert_eq!(table.size, size);
            assert_eq!(table.find_name(b"name"), Some(0));
        }
    }

    #[test]
    fn counts_the_entries_that_have_to_go() {
        let mut table = DynamicTable::new(SIZE);
        for value in [&b"1"[..], b"22", b"333"] {
            table.insert(b"a", value, 7);
        }
        assert_eq!((table.len(), table.size), (3, 34 + 35 + 36));
        for (size, evictions) in [
            (SIZE - 105, Some(0)),
            (SIZE - 104, Some(1)),
            (SIZE - 71, Some(1)),
            (SIZE - 70, Some(2)),
            (SIZE, Some(3)),
            (SIZE + 1, None),
        ] {
            assert_eq!(table.evictions(size, SIZE), evictions, "{size}");
        }
    }

    /// An attacker who knows the hash can find different lines with equal marks.
    #[test]
    fn compares_lines_with_equal_marks() {
        let mut table = DynamicTable::new(SIZE);
        for value in [&b"1"[..], b"2", b"3"] {
            table.insert(b"a", value, 7);
        }
        assert_eq!(table.find(7, Some(b"a"), b"1"), Some(2));
        assert_eq!(table.find(7, Some(b"a"), b"3"), Some(0));
        assert_eq!(table.find(7, Some(b"a"), b"4"), None);
        assert_eq!(table.find(7, Some(b"b"), b"1"), None);
        assert_eq!(table.find_name(b"b"), None);
    }
}
