//! Fuzzes [`apus_fuzz::forwarded`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(forwarded);
