//! Fuzzes [`apus_fuzz::proxy_protocol`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(proxy_protocol);
