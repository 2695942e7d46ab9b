//! Fuzzes [`apus_fuzz::http1_client`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(http1_client);
