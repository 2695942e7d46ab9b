//! Several servers, measured in turn under the same load until it is known how they differ: `apus bench compare`.
//!
//! A [`ComparisonFile`] names the servers, the load on each and how they are started; [`compare()`] measures them in rounds, in an order
//! that changes, with the load generator of this crate, and returns [`ComparedCases`]: medians, intervals, and the ratios to one of
//! the servers with how sure each difference is.

mod check;
mod clock;
mod compare;
mod environment;
mod error;
mod figures;
mod file;
mod helper;
mod idle;
mod loopback;
mod page;
mod placeholders;
mod plan;
mod process;
mod result;
mod samples;
mod schedule;
mod server;
mod statistics;
mod text;

pub use compare::{ComparisonProgress, compare};
pub use environment::ComparisonEnvironment;
pub use figures::{PublishedFigures, ReachedGoal};
pub use page::to_page;
pub use plan::{ComparisonChanges, ComparisonFile};
pub use result::{ComparedCases, ComparedRatio, ComparisonReport, FailedCase};
pub use samples::{RoundSample, ServerSamples};
pub use text::to_comparison_text;
