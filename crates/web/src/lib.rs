//! The web framework of Apus: what an application is written with, and the services that the server
//! is made of.

#![forbid(unsafe_code)]

mod error_pages;
pub mod path;
pub mod sites;
pub mod trace;
