//! Fuzzes [`apus_fuzz::http1_to_http2`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(http1_to_http2);
