//! What a server that gave up root asks its helper process for, and how: messages over a socket, with
//! descriptors beside them.

mod client;
mod message;

pub(crate) use client::HelperClient;
pub(crate) use message::{
    Loaded as LoadedByRoot, MadeCertificate, Request, Response, program_text, receive, send,
};
