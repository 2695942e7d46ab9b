//! Fuzzes [`apus_fuzz::path_resolution`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(path_resolution);
