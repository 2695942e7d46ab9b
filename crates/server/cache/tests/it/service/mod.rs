//! The cache in front of a service.

mod bypass;
mod compression;
mod ranges;
mod responses;
