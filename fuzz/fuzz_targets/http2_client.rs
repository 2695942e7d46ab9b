//! Fuzzes [`apus_fuzz::http2_client`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(http2_client);
