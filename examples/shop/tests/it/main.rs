//! Tests of the shop on SQLite, PostgreSQL and MariaDB.

#[cfg(test)]
mod api;
#[cfg(test)]
mod browser;
#[cfg(test)]
mod orders;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod site;
