//! Tests of mails: over SMTP, and caught.

#[cfg(test)]
mod caught;
#[cfg(test)]
mod smtp;
