//! Tests of jobs and schedules, in memory, databases and Redis.

#[cfg(test)]
mod commands;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod runner;
#[cfg(test)]
mod schedules;
