//! apus.toml, read into a plan and run.
