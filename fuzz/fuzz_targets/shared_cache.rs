//! Fuzzes [`apus_fuzz::shared_cache`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(shared_cache);
