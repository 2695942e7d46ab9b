//! Lists of networks as text: one in each line, as public blocklists have them.

use std::fmt;

use apus_http::Network;

/// The most mistakes of a list that are remembered with their places.
const MAX_MISTAKES: usize = 10;

/// A list of networks that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkList {
    /// The networks of the valid lines.
    pub networks: Vec<Network>,
    /// The first lines that are not valid.
    pub mistakes: Vec<NetworkListMistake>,
    /// How many lines are not valid.
    pub invalid_lines: usize,
}

/// A line that is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkListMistake {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

impl NetworkList {
    /// Reads a list: an address, or an address and a number of bits, in each line. What follows `#` or `;` is a comment, and empty
    /// lines have no meaning.
    pub fn parse(text: &[u8]) -> Self {
        let mut list = Self::default();
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let entry = line
                .split(|byte| matches!(byte, b'#' | b';'))
                .next()
                .unwrap_or_default()
                .trim_ascii();
            if entry.is_empty() {
                continue;
            }
            match network(entry) {
                Ok(network) => list.networks.push(network),
                Err(why) => {
                    list.invalid_lines += 1;
                    if list.mistakes.len() < MAX_MISTAKES {
                        let line = index.saturating_add(1);
                        list.mistakes.push(NetworkListMistake { line, why });
                    }
                }
            }
        }
        list
    }
}

fn network(entry: &[u8]) -> Result<Network, String> {
    let shown = || {
        let start = entry.get(..entry.len().min(60)).unwrap_or_default();
        String::from_utf8_lossy(start).escape_debug().to_string()
    };
    let network = std::str::from_utf8(entry).ok();
    let network = network.and_then(|text| text.parse::<Network>().ok());
    match network {
        Some(Network::Ip { bits: 0, .. }) => Err(format!("`{}` is every address", shown())),
        Some(network @ Network::Ip { .. }) => Ok(network),
        Some(Network::Unix) | None => Err(format!(
            "`{}` is no network; expected an address, or address/bits",
            shown()
        )),
    }
}

impl fmt::Display for NetworkListMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_forms_of_public_lists() {
        let list = NetworkList::parse(
            b"\xef\xbb\xbf# Spamhaus DROP has `;`, FireHOL and CrowdSec `#`\r\n\
              1.10.16.0/20 ; SBL256894\r\n\n   192.0.2.1   \n2001:db8::/32 # a comment\n\t203.0.113.9",
        );
        let networks: Vec<Network> = ["1.10.16.0/20", "192.0.2.1", "2001:db8::/32", "203.0.113.9"]
            .map(|text| text.parse().unwrap())
            .into();
        assert_eq!(list.networks, networks);
        assert_eq!(list.invalid_lines, 0);
    }

    #[test]
    fn lines_that_are_not_valid_have_their_places_and_do_not_hide_others() {
        let text = "192.0.2.1\n<html>\n192.0.2.0/33\nunix:\n0.0.0.0/0\n::/0\n192.0.2.2 192.0.2.3\n192.0.2.4\n";
        let mut bytes = text.as_bytes().to_vec();
        bytes.extend_from_slice(b"\xff\xfe\n");
        let list = NetworkList::parse(&bytes);
        assert_eq!(list.networks.len(), 2);
        let lines: Vec<usize> = list.mistakes.iter().map(|one| one.line).collect();
        assert_eq!(lines, [2, 3, 4, 5, 6, 7, 9]);
        assert_eq!(
            list.mistakes[0].to_string(),
            "line 2: `<html>` is no network; expected an address, or address/bits"
        );
        let many = NetworkList::parse("x\n".repeat(1000).as_bytes());
        assert_eq!(
            (many.invalid_lines, many.mistakes.len()),
            (1000, MAX_MISTAKES)
        );
        assert_eq!(NetworkList::parse(b""), NetworkList::default());
    }
}
