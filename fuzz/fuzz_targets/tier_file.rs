//! Fuzzes [`apus_fuzz::tier_file`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(tier_file);
