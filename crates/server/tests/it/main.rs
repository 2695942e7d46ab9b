//! Tests of the server as a library, by topic.

#[cfg(test)]
mod config;
#[cfg(test)]
mod config_cache;
#[cfg(test)]
mod config_keys;
#[cfg(test)]
mod config_origins;
#[cfg(test)]
mod config_php;
#[cfg(test)]
mod config_workers;
#[cfg(test)]
mod explain;
