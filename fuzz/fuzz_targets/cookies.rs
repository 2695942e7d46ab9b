//! Fuzzes [`apus_fuzz::cookies`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(cookies);
