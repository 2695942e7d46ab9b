//! HTTP/2: the state machine against itself, and against bytes that no honest peer sends.

mod client;
mod ends;
mod faults;
mod floods;
mod flow;
mod messages;
mod oracle;
mod shutdown;
mod turns;
