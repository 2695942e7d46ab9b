//! The shop on SQLite, PostgreSQL and MariaDB, as they really are.

#[cfg(test)]
mod api;
#[cfg(test)]
mod orders;
#[cfg(test)]
mod servers;
