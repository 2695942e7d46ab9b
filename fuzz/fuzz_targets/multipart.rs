//! Fuzzes [`apus_fuzz::multipart`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(multipart);
