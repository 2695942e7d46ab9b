//! Tests of the content codings of responses.

#[cfg(test)]
mod responses;
