//! Property tests: how many cases they try.

use proptest::prelude::*;

/// This number of cases, unless `PROPTEST_CASES` in the environment names another.
pub fn cases(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: match std::env::var_os("PROPTEST_CASES") {
            Some(_) => default.cases,
            None => cases,
        },
        failure_persistence: None,
        ..default
    }
}
