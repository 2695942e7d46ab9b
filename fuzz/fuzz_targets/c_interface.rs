//! Fuzzes [`apus_fuzz::c_interface`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(c_interface);
