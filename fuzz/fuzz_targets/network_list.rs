//! Fuzzes [`apus_fuzz::network_list`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(network_list);
