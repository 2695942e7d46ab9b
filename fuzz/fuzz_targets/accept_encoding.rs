//! Fuzzes [`apus_fuzz::accept_encoding`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(accept_encoding);
