//! Fuzzes [`apus_fuzz::qpack`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(qpack);
