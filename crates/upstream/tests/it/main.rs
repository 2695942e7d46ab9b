//! Groups of origins over real sockets: origins that answer, refuse, die, freeze and lie.

mod balancing;
mod checks;
mod dns;
mod harness;
mod health;
mod pool;
mod queue;
mod releases;
mod reload;
mod retries;
