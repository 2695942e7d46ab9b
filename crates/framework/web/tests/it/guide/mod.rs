//! What the guide says beside its examples and the other tests, by chapter.

mod accounts;
mod application;
mod handlers;
mod sessions;
