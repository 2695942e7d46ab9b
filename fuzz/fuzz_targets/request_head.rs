//! Fuzzes [`apus_fuzz::request_head`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(request_head);
