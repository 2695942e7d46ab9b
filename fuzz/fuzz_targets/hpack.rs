//! Fuzzes [`apus_fuzz::hpack`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(hpack);
