//! The server as a whole: its access log, privileges, request facts and ids, and reloads under load.

mod access;
mod access_log;
mod admin;
mod bans;
mod bots;
mod client_facts;
mod credentials;
mod fetched_keys;
mod forward_auth;
mod geo;
mod glitches;
mod limits;
mod maintenance;
mod maps;
mod own_files;
mod privileges;
mod recipes;
mod request_facts;
mod request_ids;
mod rules;
mod tickets;
mod tls_policies;
mod traffic;
mod under_load;
mod variables;
mod whens;
