//! Fuzzes [`apus_fuzz::php_wire`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(php_wire);
