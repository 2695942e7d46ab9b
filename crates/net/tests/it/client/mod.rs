//! Connections to origins: what they make of origins that are honest, slow, broken and hostile.

mod content;
mod framing;
mod harness;
mod persistence;
