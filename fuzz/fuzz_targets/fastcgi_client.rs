//! Fuzzes [`apus_fuzz::fastcgi_client`].

#![cfg_attr(fuzzing, no_main)]

apus_fuzz::run!(fastcgi_client);
