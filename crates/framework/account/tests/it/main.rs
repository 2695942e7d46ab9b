//! Tests of accounts: stores of tokens, and remembered log-ins.

#[cfg(test)]
mod remember;
#[cfg(test)]
mod stores;
