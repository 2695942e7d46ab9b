//! Fuzzes [`apus_fuzz::response_head`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(response_head);
