//! What the guide says beside its examples and the other tests, by chapter.

mod accounts;
mod handlers;
mod sessions;
