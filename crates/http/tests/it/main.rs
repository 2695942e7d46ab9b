//! Tests of the codecs through their public doors.

#[cfg(test)]
mod framing;
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
