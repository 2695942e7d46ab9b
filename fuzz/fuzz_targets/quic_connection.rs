//! Fuzzes [`apus_fuzz::quic_connection`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(quic_connection);
