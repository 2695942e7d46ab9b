//! Fuzzes [`apus_fuzz::http3_frames`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(http3_frames);
