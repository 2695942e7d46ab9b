//! Lines on their way from a worker to the places of a log.

use std::sync::Arc;
use std::time::Duration;

use crate::destination::SyslogLabel;

/// What a batch costs beside its bytes, so that many small batches are bounded, too.
const BATCH_OVERHEAD: usize = 256;

/// Lines of one log, each with its line feed.
#[derive(Debug)]
pub(crate) struct LineBatch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lines: u64,
    /// What receivers need beside the lines; `None` if the log has only a file.
    pub(crate) messages: Option<MessageBatch>,
}

/// What receivers need of each line of a batch.
#[derive(Debug)]
pub(crate) struct MessageBatch {
    pub(crate) label: Arc<SyslogLabel>,
    pub(crate) records: Vec<LineRecord>,
    /// The journal's own fields of each line, as `NAME=value` with line feeds.
    pub(crate) fields: Vec<u8>,
}

/// One line of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineRecord {
    /// Where the line ends, behind its line feed.
    pub(crate) end: usize,
    /// Where its fields end.
    pub(crate) fields_end: usize,
    /// The time since 1970 at which the response ended.
    pub(crate) time: Duration,
    pub(crate) severity: MessageSeverity,
}

/// How important a message is (RFC 5424 section 6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageSeverity {
    /// The request failed because of the server or of its origin.
    Error = 3,
    Informational = 6,
}

/// A line of a batch, for a receiver.
pub(crate) struct LogMessage<'a> {
    pub(crate) label: &'a SyslogLabel,
    /// The line without its line feed.
    pub(crate) text: &'a [u8],
    pub(crate) fields: &'a [u8],
    pub(crate) time: Duration,
    pub(crate) severity: MessageSeverity,
}

impl LineBatch {
    /// The memory that it takes, about.
    pub(crate) fn size(&self) -> usize {
        let messages = self.messages.as_ref().map_or(0, |messages| {
            let records = messages
                .records
                .len()
                .saturating_mul(size_of::<LineRecord>());
            records.saturating_add(messages.fields.len())
        });
        self.bytes
            .len()
            .saturating_add(messages)
            .saturating_add(BATCH_OVERHEAD)
    }

    /// The number of messages that receivers get.
    pub(crate) fn messages(&self) -> usize {
        self.messages
            .as_ref()
            .map_or(0, |messages| messages.records.len())
    }

    /// The message of the line with this number, counted from 0.
    pub(crate) fn message(&self, number: usize) -> Option<LogMessage<'_>> {
        let messages = self.messages.as_ref()?;
        let record = messages.records.get(number)?;
        let before = number
            .checked_sub(1)
            .and_then(|before| messages.records.get(before));
        let (start, fields_start) = before.map_or((0, 0), |one| (one.end, one.fields_end));
        Some(LogMessage {
            label: &messages.label,
            text: self.bytes.get(start..record.end.saturating_sub(1))?,
            fields: messages.fields.get(fields_start..record.fields_end)?,
            time: record.time,
            severity: record.severity,
        })
    }
}
