//! Fuzzes [`apus_fuzz::http3_connection`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(http3_connection);
