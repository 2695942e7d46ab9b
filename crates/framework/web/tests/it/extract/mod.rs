//! Extractors that need what only an application has: sessions, states of groups, rules of fields.

mod async_extractors;
mod body_limit;
mod incomplete_body;
mod optional;
mod validation;
