//! Tests of the codecs through their public API.

#[cfg(test)]
mod client;
#[cfg(test)]
mod client_oracle;
#[cfg(test)]
mod fastcgi;
#[cfg(test)]
mod framing;
#[cfg(test)]
mod h2;
#[cfg(test)]
mod hpack;
#[cfg(test)]
mod lighttpd;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod responses;
#[cfg(test)]
mod transcript;
