//! The places that a log's lines go to beside a file, as they are written: syslog and journald.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The port of syslog (RFC 5426 section 3.3), which servers use for TCP, too.
const SYSLOG_PORT: u16 = 514;

/// The socket of systemd's journal for its own protocol.
pub const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// The longest path of a Unix socket: the kernel's limit without the NUL.
const MAX_SOCKET_PATH: usize = 107;

/// Where a syslog server listens: `udp://HOST:PORT`, `tcp://HOST:PORT` or `unix:/dev/log`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SyslogAddress {
    /// Datagrams (RFC 5426).
    Udp(SyslogHost),
    /// A connection with octet counting (RFC 6587 section 3.4.1).
    Tcp(SyslogHost),
    /// Datagrams to a Unix socket.
    Unix(PathBuf),
}

/// The name or the address of a syslog server, and its port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SyslogHost {
    /// A name, or an address without brackets.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
}

impl fmt::Display for SyslogHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for SyslogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(host) => write!(f, "udp://{host}"),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Why a text is not the address of a syslog server, as the end of a sentence about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyslogAddressError(&'static str);

impl fmt::Display for SyslogAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for SyslogAddressError {}

impl FromStr for SyslogAddress {
    type Err = SyslogAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.len() {
                0 => Err(SyslogAddressError("the path is missing")),
                1..=MAX_SOCKET_PATH if !path.contains('\0') => Ok(Self::Unix(path.into())),
                _ => Err(SyslogAddressError(
                    "the path of a socket has at most 107 bytes",
                )),
            };
        }
        match text.split_once("://") {
            Some(("udp", host)) => host.parse().map(Self::Udp),
            Some(("tcp", host)) => host.parse().map(Self::Tcp),
            _ => Err(SyslogAddressError(
                "it begins with `udp://`, `tcp://` or `unix:`",
            )),
        }
    }
}

impl FromStr for SyslogHost {
    type Err = SyslogAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const NO_HOST: SyslogAddressError =
            SyslogAddressError("expected a host and a port as `logs.example:514`");
        const NO_PORT: SyslogAddressError = SyslogAddressError("the port is from 1 to 65535");

        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or(NO_HOST)?;
                let _: std::net::Ipv6Addr = host.parse().map_err(|_| NO_HOST)?;
                (host, port)
            }
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                port.parse().map_err(|_| NO_PORT)?
            }
            Some(_) => return Err(NO_PORT),
            None if port.is_empty() => SYSLOG_PORT,
            None => return Err(NO_HOST),
        };
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_name = !text.starts_with('[');
        if host.is_empty() || (is_name && (host.len() > 253 || !host.bytes().all(is_of_name))) {
            return Err(NO_HOST);
        }
        if port == 0 {
            return Err(NO_PORT);
        }
        Ok(Self {
            host: host.into(),
            port,
        })
    }
}

/// The form of a syslog message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyslogFormat {
    /// RFC 5424.
    Rfc5424,
    /// RFC 3164, without the host on a Unix socket: what programs write to `/dev/log`.
    Rfc3164,
}

/// What the messages of a log say about their sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyslogLabel {
    /// The number of the facility (RFC 5424 section 6.2.1), at most 23.
    pub facility: u8,
    /// The name of the application: 1 to 48 visible ASCII characters.
    pub app_name: Box<str>,
    /// The form of syslog messages. By default RFC 5424 over UDP and TCP, and RFC 3164 on Unix sockets, where readers such as
    /// journald know nothing else.
    pub format: Option<SyslogFormat>,
}

impl Default for SyslogLabel {
    fn default() -> Self {
        Self {
            facility: 23,
            app_name: "apus".into(),
            format: None,
        }
    }
}

/// A receiver of lines that is not a file. Logs that name the same one share its queue and its connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogReceiver {
    /// A syslog server.
    Syslog(SyslogAddress),
    /// The socket of a journal, for systemd's own protocol.
    Journal(PathBuf),
}

impl LogReceiver {
    /// The journal of the system.
    pub fn journal() -> Self {
        Self::Journal(Path::new(JOURNAL_SOCKET).to_owned())
    }
}

impl fmt::Display for LogReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syslog(address) => address.fmt(f),
            Self::Journal(socket) => write!(f, "journald:{}", socket.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_in_one_form() {
        for (text, written) in [
            ("udp://10.0.0.1:5514", "udp://10.0.0.1:5514"),
            ("udp://logs.example", "udp://logs.example:514"),
            ("tcp://[2001:db8::1]:601", "tcp://[2001:db8::1]:601"),
            ("tcp://[::1]", "tcp://[::1]:514"),
            ("unix:/dev/log", "unix:/dev/log"),
        ] {
            let address: SyslogAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), written);
        }
    }

    #[test]
    fn refuses_what_is_no_address() {
        for text in [
            "",
            "/dev/log",
            "logs.example:514",
            "tls://logs.example",
            "udp://",
            "udp://:514",
            "udp://a:0",
            "udp://a:65536",
            "udp://a:+5",
            "udp://a:5:6",
            "udp://2001:db8::1",
            "udp://[::1",
            "udp://[::1]514",
            "udp://[a]:514",
            "udp://a/b:514",
            "udp://a b",
            "unix:",
        ] {
            assert!(text.parse::<SyslogAddress>().is_err(), "{text}");
        }
        let long = format!("unix:/{}", "a".repeat(107));
        assert!(long.parse::<SyslogAddress>().is_err());
    }
}
