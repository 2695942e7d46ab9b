//! Fuzzes [`apus_fuzz::chunked`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(chunked);
