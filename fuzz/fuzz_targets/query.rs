//! Fuzzes [`apus_fuzz::query`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(query);
