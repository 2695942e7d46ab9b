//! Fuzzes [`apus_fuzz::quic_decoding`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(quic_decoding);
