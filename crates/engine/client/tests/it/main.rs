//! Connections to origins: their behaviour with origins that are honest, slow, broken and hostile.

#[cfg(test)]
mod addresses;
#[cfg(test)]
mod bodies;
#[cfg(test)]
mod fastcgi;
#[cfg(test)]
mod framing;
#[cfg(test)]
mod h2;
#[cfg(test)]
mod h3;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod interim;
#[cfg(test)]
mod persistence;
#[cfg(test)]
mod timeouts;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod tunnels;
