//! Resident workers: the wire, the pool, and real PHP.

#[cfg(test)]
mod events;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fpm;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod mixed;
#[cfg(test)]
mod reloads;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod wire;
