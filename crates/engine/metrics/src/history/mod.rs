//! What a server did each second, minute and hour: records of its counters and times in a file of fixed size.
//!
//! - `step`: the three steps, and where each time has its slot.
//! - `column`: the numbers of a record.
//! - `record`: a record, its sum with others, and its encoding.
//! - `file`: the file.
//! - `series`: the records of a time, by name.

mod column;
mod file;
mod record;
mod series;
mod step;

pub use column::HistoryColumn;
pub use file::{HistoryFile, HistoryFileOrigin};
pub use record::{HistoryRecord, HistorySite, HistoryValue};
pub use series::{HistoryQuery, HistorySeries, SiteHistory};
pub use step::HistoryStep;
