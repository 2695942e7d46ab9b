//! The web framework of Apus: what an application is written with, and the services that the server
//! is made of.

#![forbid(unsafe_code)]

pub mod path;
pub mod trace;
