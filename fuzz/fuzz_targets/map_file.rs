//! Fuzzes [`apus_fuzz::map_file`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(map_file);
