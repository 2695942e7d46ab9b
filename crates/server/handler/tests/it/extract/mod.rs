//! Extractors, and the layers that set their limits.

mod async_extractors;
mod body_limit;
mod certificates;
mod client_info;
mod cookies;
mod incomplete_body;
mod paging;
mod uploads;
mod values;
