//! The configuration of property tests.

use proptest::prelude::*;

/// A configuration with this number of cases, unless the environment variable `PROPTEST_CASES` sets another.
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
