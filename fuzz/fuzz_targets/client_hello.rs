//! Fuzzes [`apus_fuzz::client_hello`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(client_hello);
