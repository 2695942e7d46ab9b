//! Fuzzes [`apus_fuzz::range`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(range);
