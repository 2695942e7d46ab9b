//! Fuzzes [`apus_fuzz::conditions`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(conditions);
