//! Fuzzes [`apus_fuzz::jwks`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(jwks);
