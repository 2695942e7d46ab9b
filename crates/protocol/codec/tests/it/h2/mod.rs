//! Tests HTTP/2 with two connected state machines, and with input that legitimate peers do not send.

mod client;
mod endpoint;
mod faults;
mod floods;
mod flow;
mod messages;
mod oracle;
mod scheduling;
mod shutdown;
