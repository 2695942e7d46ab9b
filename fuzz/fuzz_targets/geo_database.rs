//! Fuzzes [`apus_fuzz::geo_database`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(geo_database);
