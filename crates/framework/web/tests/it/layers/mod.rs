//! Layers around an application: mounted files, log lines, panics.

mod files;
mod logs;
mod panics;
