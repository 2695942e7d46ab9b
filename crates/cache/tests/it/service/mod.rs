//! The cache in front of a service.

mod bypass;
mod forms;
mod ranges;
mod responses;
