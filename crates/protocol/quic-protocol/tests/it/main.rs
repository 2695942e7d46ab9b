//! Two ends on virtual time, by topic. Each test tells what an end does, whatever the network does between them.

#[cfg(test)]
mod agreement;
#[cfg(test)]
mod amplification;
#[cfg(test)]
mod close;
#[cfg(test)]
mod congestion;
#[cfg(test)]
mod connection_ids;
#[cfg(test)]
mod differential;
#[cfg(test)]
mod early_data;
#[cfg(test)]
mod flow_control;
#[cfg(test)]
mod frame_errors;
#[cfg(test)]
mod frame_types;
#[cfg(test)]
mod handshake;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod idle;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod migration;
#[cfg(test)]
mod mtu;
#[cfg(test)]
mod packets;
#[cfg(test)]
mod parameters;
#[cfg(test)]
mod recovery;
#[cfg(test)]
mod retry;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod versions;
