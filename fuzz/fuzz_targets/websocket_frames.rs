//! Fuzzes [`apus_fuzz::websocket_frames`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(websocket_frames);
