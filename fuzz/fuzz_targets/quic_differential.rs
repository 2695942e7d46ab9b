//! Fuzzes [`apus_fuzz::quic_differential`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(quic_differential);
