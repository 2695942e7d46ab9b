//! Fuzzes [`apus_fuzz::http2_to_http1`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(http2_to_http1);
