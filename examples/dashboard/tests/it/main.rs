//! Tests of the dashboard.

#[cfg(test)]
mod dashboard;
