//! Fuzzes [`apus_fuzz::configuration`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(configuration);
