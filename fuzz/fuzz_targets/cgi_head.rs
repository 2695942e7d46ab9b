//! Fuzzes [`apus_fuzz::cgi_head`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(cgi_head);
