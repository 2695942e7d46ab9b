//! Placeholders in the file of a comparison: its values, free ports, and folders.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;

use serde::Deserialize;

/// How often a port is tried that is free for both TCP and UDP.
const ATTEMPTS: usize = 100;

/// The table of values, of a file that may contain anything else.
#[derive(Deserialize)]
struct ValuesOnly {
    #[serde(default)]
    values: BTreeMap<String, String>,
}

/// What placeholders stand for.
pub(crate) struct Placeholders<'a> {
    values: BTreeMap<String, String>,
    /// The folder of the file.
    here: &'a Path,
    /// A folder of this comparison alone, which is removed at its end.
    work: &'a Path,
    ports: BTreeMap<String, u16>,
}

impl<'a> Placeholders<'a> {
    /// The values of a file, of which some are replaced.
    pub(crate) fn of(
        text: &str,
        replaced: &BTreeMap<String, String>,
        (here, work): (&'a Path, &'a Path),
    ) -> Result<Self, toml::de::Error> {
        let found: ValuesOnly = toml::from_str(text)?;
        let mut values = found.values;
        for (name, value) in &mut values {
            if let Some(other) = replaced.get(name) {
                value.clone_from(other);
            }
        }
        Ok(Self {
            values,
            here,
            work,
            ports: BTreeMap::new(),
        })
    }

    /// The names of the values.
    pub(crate) fn names(&self) -> Vec<String> {
        self.values.keys().cloned().collect()
    }

    /// The text with what its placeholders stand for. Names begin with a small letter: others are left to the shell.
    pub(crate) fn fill(&mut self, text: &str) -> Result<String, PlaceholderError> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(before) = before.strip_suffix('$') {
                out.push_str(before);
                out.push_str("${");
                rest = after;
                continue;
            }
            out.push_str(before);
            match after.split_once('}') {
                Some((name, after))
                    if name.starts_with(|first: char| first.is_ascii_lowercase()) =>
                {
                    out.push_str(&self.value(name)?);
                    rest = after;
                }
                _ => {
                    out.push_str("${");
                    rest = after;
                }
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    fn value(&mut self, name: &str) -> Result<String, PlaceholderError> {
        if let Some(port) = name.strip_prefix("port.") {
            return self.port(port).map(|port| port.to_string());
        }
        match name {
            "here" => Ok(self.here.display().to_string()),
            "work" => Ok(self.work.display().to_string()),
            name => {
                let value = self.values.get(name).cloned();
                value.ok_or_else(|| PlaceholderError::Unknown(name.to_owned()))
            }
        }
    }

    /// The port with this name, which is free when it is named first.
    fn port(&mut self, name: &str) -> Result<u16, PlaceholderError> {
        if let Some(port) = self.ports.get(name) {
            return Ok(*port);
        }
        for _ in 0..ATTEMPTS {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
                .and_then(|listener| listener.local_addr())
                .map_err(PlaceholderError::NoPort)?
                .port();
            let is_free = UdpSocket::bind((Ipv4Addr::LOCALHOST, free)).is_ok();
            if is_free && !self.ports.values().any(|port| *port == free) {
                self.ports.insert(name.to_owned(), free);
                return Ok(free);
            }
        }
        Err(PlaceholderError::NoPortOfBoth)
    }
}

/// Why a placeholder stands for nothing.
#[derive(Debug)]
pub(crate) enum PlaceholderError {
    /// No value has this name.
    Unknown(String),
    /// The system has no port.
    NoPort(io::Error),
    /// No port that was tried is free for both TCP and UDP.
    NoPortOfBoth,
}

impl fmt::Display for PlaceholderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(
                f,
                "`${{{name}}}` is unknown; there are ${{here}}, ${{work}}, ${{port.NAME}} and the table `values`, and $${{ \
                 is no placeholder"
            ),
            Self::NoPort(error) => write!(f, "no port is free: {error}"),
            Self::NoPortOfBoth => f.write_str("no port is free for TCP and UDP"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_and_others_are_left_to_the_shell() {
        let text = "[values]\nsize = \"10M\"\nname = \"a\"\n";
        let replaced = BTreeMap::from([("size".to_owned(), "1M".to_owned())]);
        let folders = (Path::new("/here"), Path::new("/work"));
        let mut known = Placeholders::of(text, &replaced, folders).unwrap();
        let filled = known
            .fill("${size} ${name} ${here}/x ${work} ${PWD} $PWD $${size} ${")
            .unwrap();
        assert_eq!(filled, "1M a /here/x /work ${PWD} $PWD ${size} ${");
        let ports = known.fill("${port.a} ${port.b} ${port.a}").unwrap();
        let ports: Vec<u16> = ports.split(' ').map(|port| port.parse().unwrap()).collect();
        assert!(ports[0] == ports[2] && ports[0] != ports[1], "{ports:?}");
        assert!(
            known
                .fill("${sise}")
                .unwrap_err()
                .to_string()
                .contains("`${sise}` is unknown")
        );
        assert!(Placeholders::of("[values]\nsize = 1", &replaced, folders).is_err());
    }
}
