//! Fuzzes [`apus_fuzz::cache_fields`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(cache_fields);
