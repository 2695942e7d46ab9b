//! Tests of databases, on SQLite, PostgreSQL and MariaDB.

#[cfg(test)]
mod commands;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod db;
#[cfg(test)]
mod executor;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod migrate;
#[cfg(test)]
mod models;
#[cfg(test)]
mod query_log;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod test_database;
#[cfg(test)]
mod transactions;
