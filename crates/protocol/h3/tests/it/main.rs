//! Tests of HTTP/3 and QPACK, by topic.

#[cfg(test)]
mod compression;
#[cfg(test)]
mod control;
#[cfg(test)]
mod endpoint;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod floods;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod priorities;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod qpack;
#[cfg(test)]
mod shutdown;
