//! Fuzzes [`apus_fuzz::cache_record`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(cache_record);
