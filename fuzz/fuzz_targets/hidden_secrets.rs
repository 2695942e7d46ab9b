//! Fuzzes [`apus_fuzz::hidden_secrets`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(hidden_secrets);
