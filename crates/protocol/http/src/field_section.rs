//! `FieldSection`: the memory of field lines, where each line is in it, and its use by the next section of the thread.

use std::cell::RefCell;
use std::ops::Range;

use smallvec::SmallVec;

use crate::encoded::EncodedForm;
use crate::field_summary::FieldSummary;
use crate::known_field::{FieldSet, KnownField};
use crate::scan::make_name_lower_case;

/// The lines of a section. They are written into the buffer by [`crate::Headers`], which keeps them valid.
#[derive(Default)]
pub(crate) struct FieldSection {
    /// Each line as `name: value CRLF`.
    pub(crate) wire: Vec<u8>,
    pub(crate) lines: SmallVec<[FieldLine; 20]>,
    /// The known fields of the lines.
    pub(crate) fields: FieldSet,
    pub(crate) encoded: EncodedForm,
}

/// The most bytes of the buffer of a section that is kept for the next one.
const MAX_KEPT_BYTES: usize = 2048;

/// The most free sections of a thread.
const MAX_FREE_SECTIONS: usize = 64;

thread_local! {
    /// Empty ones.
    #[expect(clippy::vec_box, reason = "sections come and go in their boxes, without a copy")]
    static FREE: RefCell<Vec<Box<FieldSection>>> = const { RefCell::new(Vec::new()) };
}

impl FieldSection {
    /// An empty section, with the memory of an earlier one if one is free.
    pub(crate) fn take() -> Box<Self> {
        let free = FREE.try_with(|free| free.borrow_mut().pop());
        free.ok().flatten().unwrap_or_default()
    }

    /// Keeps the memory for the next section of this thread, unless it is large.
    pub(crate) fn give_back(mut self: Box<Self>) {
        if self.wire.capacity() > MAX_KEPT_BYTES || self.lines.spilled() {
            return;
        }
        self.clear();
        // At the end of the thread the list may be gone.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < MAX_FREE_SECTIONS {
                free.push(self);
            }
        });
    }

    /// The same lines in separate memory.
    pub(crate) fn copy(&self, summarize: impl FnOnce() -> FieldSummary) -> Box<Self> {
        let mut copy = Self::take();
        copy.wire.extend_from_slice(&self.wire);
        copy.lines.extend_from_slice(&self.lines);
        copy.fields = self.fields;
        copy.encoded = self.encoded.copy(summarize);
        copy
    }

    pub(crate) fn clear(&mut self) {
        self.encoded.clear();
        self.wire.clear();
        self.lines.clear();
        self.fields = FieldSet::default();
    }

    /// Forgets what was known of all lines together, as others with these fields are added.
    #[inline]
    pub(crate) fn lines_are_added(&mut self, fields: FieldSet) {
        if FieldSummary::FIELDS.has_any(fields) {
            self.encoded.clear();
        } else {
            self.encoded.clear_forms();
        }
    }

    /// Adds the index of the last line of the buffer, whose name becomes lower case.
    #[inline]
    pub(crate) fn add_line(&mut self, line: FieldLine) {
        let mut line = line;
        if let Some(bytes) = self.wire.get_mut(line.start as usize..) {
            make_name_lower_case(bytes, usize::from(line.name));
            line.field = KnownField::of(bytes.get(..usize::from(line.name)).unwrap_or_default());
        }
        self.lines_are_added(FieldSet::of(&[line.field]));
        self.fields.add(line.field);
        self.lines.push(line);
    }
}

/// Where a line is in the buffer.
#[derive(Clone, Copy)]
pub(crate) struct FieldLine {
    pub(crate) start: u32,
    /// The length of its name.
    pub(crate) name: u16,
    /// Whether no HPACK encoder may put it into a table (RFC 7541 section 7.1.3).
    pub(crate) never_indexed: bool,
    pub(crate) field: KnownField,
    /// The length of its value.
    pub(crate) value: u32,
}

impl FieldLine {
    pub(crate) const SEPARATOR: usize = 2;
    pub(crate) const END: usize = 2;

    /// The line at `start` with a name and a value of these lengths. `None` past 4 GiB of field lines, which no
    /// limit allows.
    pub(crate) fn new(start: usize, name: usize, value: usize) -> Option<Self> {
        Some(Self {
            start: u32::try_from(start).ok()?,
            name: u16::try_from(name).ok()?,
            never_indexed: false,
            field: KnownField::Other,
            value: u32::try_from(value).ok()?,
        })
    }

    /// The bytes of its name.
    pub(crate) fn name(self) -> Range<usize> {
        let start = self.start as usize;
        start..start.saturating_add(usize::from(self.name))
    }

    /// The bytes of its value.
    pub(crate) fn value(self) -> Range<usize> {
        let start = self.name().end.saturating_add(Self::SEPARATOR);
        start..start.saturating_add(self.value as usize)
    }

    /// All its bytes, to the end of the CRLF.
    pub(crate) fn whole(self) -> Range<usize> {
        self.start as usize..self.value().end.saturating_add(Self::END)
    }
}
