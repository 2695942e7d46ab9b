//! Fuzzes [`apus_fuzz::http2_frames`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(http2_frames);
