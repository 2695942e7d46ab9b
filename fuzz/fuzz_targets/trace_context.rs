//! Fuzzes [`apus_fuzz::trace_context`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(trace_context);
