//! Fuzzes [`apus_fuzz::bot_signature`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(bot_signature);
