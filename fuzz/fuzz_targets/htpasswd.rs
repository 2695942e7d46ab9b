//! Fuzzes [`apus_fuzz::htpasswd`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(htpasswd);
