//! Extractors and the layers that set their limits, over real connections.

mod async_extractors;
mod body_limit;
mod certificates;
mod client_info;
mod cookies;
mod incomplete_body;
mod optional;
mod paging;
mod uploads;
mod validation;
