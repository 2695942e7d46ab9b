//! Tests of the chat.

#[cfg(test)]
mod chat;
