//! The messages between a server that gave up root and its helper process.

mod client;
mod message;

pub(crate) use client::HelperClient;
pub(crate) use message::{
    HelperRequest, HelperResponse, IssuedCertificate, LoadedByRoot, MAX_REQUEST, program_text,
    receive, send,
};
