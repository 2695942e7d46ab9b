//! JA4: the fingerprint of a TLS client by its ClientHello (RFC 8446 section 4.1.2), as FoxIO defines it.

use std::fmt::Write;

use apus_tokens::{Hexadecimal, sha256};

/// The transport of a TLS connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsTransport {
    /// TCP.
    Tcp,
    /// QUIC.
    Quic,
}

/// Extensions with a part of their own in the fingerprint (RFC 6066, RFC 7301, RFC 8446).
const SERVER_NAME: u16 = 0;
const SIGNATURE_ALGORITHMS: u16 = 13;
const ALPN: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;

/// What a ClientHello offers, without the values that clients make up so that servers ignore unknown ones (GREASE, RFC 8701).
#[derive(Debug, Default)]
struct OfferedTls<'a> {
    version: u16,
    ciphers: Vec<u16>,
    extensions: Vec<u16>,
    signature_algorithms: Vec<u16>,
    /// The first protocol of ALPN.
    protocol: &'a [u8],
}

/// The fingerprint JA4 of a client, such as `t13d1516h2_8daaf6152771_e5627efa2ab1`, by its ClientHello: a handshake message with its header,
/// without records. `None` for what is none.
///
/// It is the same for each connection of one kind of client, in whatever order it sends its extensions, so it tells a program that
/// names itself a browser from one. Clients can imitate another one.
pub fn ja4(message: &[u8], transport: TlsTransport) -> Option<String> {
    Some(OfferedTls::parse(message)?.fingerprint(transport))
}

/// As [`ja4`], of the records of TLS over TCP (RFC 8446 section 5.1) in which a connection begins.
pub fn ja4_of_records(records: &[u8]) -> Option<String> {
    let mut reader = HelloReader(records);
    let mut message = Vec::new();
    while let Some(header) = reader.take(3) {
        let fragment = reader.vector(2)?;
        if header.first() != Some(&22) {
            return None;
        }
        message.extend_from_slice(fragment);
        if HelloReader(&message).message().is_some() {
            break;
        }
    }
    ja4(&message, TlsTransport::Tcp)
}

impl<'a> OfferedTls<'a> {
    fn parse(message: &'a [u8]) -> Option<Self> {
        let mut body = HelloReader(HelloReader(message).message()?);
        let mut offered = Self {
            version: body.number()?,
            ..Self::default()
        };
        body.take(32)?;
        body.vector(1)?;
        offered.ciphers = numbers(body.vector(2)?);
        body.vector(1)?;
        // A client of TLS 1.2 may have no extensions.
        let mut extensions = HelloReader(match body.0 {
            [] => &[],
            _ => body.vector(2)?,
        });
        while !extensions.0.is_empty() {
            let kind = extensions.number()?;
            let data = HelloReader(extensions.vector(2)?);
            if is_grease(kind) {
                continue;
            }
            offered.extensions.push(kind);
            offered.read(kind, data);
        }
        Some(offered)
    }

    /// Reads the data of an extension. What is malformed in it is left out: the handshake is refused for it elsewhere.
    fn read(&mut self, kind: u16, mut data: HelloReader<'a>) {
        match kind {
            SIGNATURE_ALGORITHMS => {
                self.signature_algorithms = data.vector(2).map(numbers).unwrap_or_default();
            }
            ALPN => {
                let first = data.vector(2).and_then(|list| HelloReader(list).vector(1));
                self.protocol = first.unwrap_or_default();
            }
            SUPPORTED_VERSIONS => {
                let versions = data.vector(1).map(numbers).unwrap_or_default();
                self.version = versions.into_iter().max().unwrap_or(self.version);
            }
            _ => {}
        }
    }

    fn fingerprint(&self, transport: TlsTransport) -> String {
        let transport = match transport {
            TlsTransport::Tcp => 't',
            TlsTransport::Quic => 'q',
        };
        let version = match self.version {
            0x0304 => "13",
            0x0303 => "12",
            0x0302 => "11",
            0x0301 => "10",
            0x0300 => "s3",
            0x0002 => "s2",
            _ => "00",
        };
        let name = if self.extensions.contains(&SERVER_NAME) {
            'd'
        } else {
            'i'
        };
        let ciphers = self.ciphers.len().min(99);
        let extensions = self.extensions.len().min(99);
        let protocol = ends(self.protocol);
        let mut text = format!("{transport}{version}{name}{ciphers:02}{extensions:02}{protocol}_");
        text += &digest(&joined(sorted(&self.ciphers)));
        text.push('_');
        let others = self
            .extensions
            .iter()
            .filter(|kind| !matches!(**kind, SERVER_NAME | ALPN));
        let mut others = joined(sorted(others));
        if !self.signature_algorithms.is_empty() {
            others.push('_');
            others += &joined(self.signature_algorithms.iter().copied());
        }
        text += &digest(&others);
        text
    }
}

/// The first and the last character of a protocol; of the hexadecimal digits of one that has others than letters and digits there.
fn ends(protocol: &[u8]) -> String {
    let (Some(first), Some(last)) = (protocol.first(), protocol.last()) else {
        return "00".to_owned();
    };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [char::from(*first), char::from(*last)].iter().collect();
    }
    let digits = format!("{}", Hexadecimal(protocol));
    let ends = [digits.chars().next(), digits.chars().next_back()];
    ends.into_iter().flatten().collect()
}

/// The first twelve digits of the SHA-256 of a text; zeros for none.
fn digest(text: &str) -> String {
    if text.is_empty() {
        return "000000000000".to_owned();
    }
    let digest = sha256(text.as_bytes());
    format!("{}", Hexadecimal(digest.get(..6).unwrap_or_default()))
}

fn sorted<'n>(numbers: impl IntoIterator<Item = &'n u16>) -> impl Iterator<Item = u16> {
    let mut sorted: Vec<u16> = numbers.into_iter().copied().collect();
    sorted.sort_unstable();
    sorted.into_iter()
}

fn joined(numbers: impl Iterator<Item = u16>) -> String {
    let mut text = String::new();
    for number in numbers {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{number:04x}");
    }
    text
}

/// The numbers of a list, without those of GREASE.
fn numbers(list: &[u8]) -> Vec<u16> {
    let numbers = list.chunks_exact(2).filter_map(|pair| pair.try_into().ok());
    numbers
        .map(u16::from_be_bytes)
        .filter(|number| !is_grease(*number))
        .collect()
}

/// RFC 8701 section 2.
fn is_grease(number: u16) -> bool {
    let [high, low] = number.to_be_bytes();
    high == low && low & 0x0f == 0x0a
}

/// What is left of a part of a ClientHello.
#[derive(Clone, Copy)]
struct HelloReader<'a>(&'a [u8]);

impl<'a> HelloReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        let bytes = self.take(2)?.try_into().ok()?;
        Some(u16::from_be_bytes(bytes))
    }

    /// Bytes behind their length, which has so many bytes itself.
    fn vector(&mut self, length_bytes: usize) -> Option<&'a [u8]> {
        let length = self.take(length_bytes)?.iter();
        let length = length.fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
        self.take(length)
    }

    /// The body of a whole ClientHello (RFC 8446 section 4).
    fn message(mut self) -> Option<&'a [u8]> {
        match self.take(1)? {
            [1] => self.vector(3),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(length_bytes: usize, bytes: &[u8]) -> Vec<u8> {
        let length = bytes.len().to_be_bytes();
        [&length[8 - length_bytes..], bytes].concat()
    }

    fn words(numbers: &[u16]) -> Vec<u8> {
        numbers
            .iter()
            .flat_map(|number| number.to_be_bytes())
            .collect()
    }

    fn hello(version: u16, ciphers: &[u16], extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let extensions: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, data)| [words(&[*kind]), list(2, data)].concat())
            .collect();
        let body = [
            words(&[version]),
            vec![7; 32],
            list(1, &[]),
            list(2, &words(ciphers)),
            list(1, &[0]),
            list(2, &extensions),
        ];
        [vec![1], list(3, &body.concat())].concat()
    }

    /// The ClientHello of the example in the specification, by its list of values (JA4_r).
    fn example() -> Vec<u8> {
        let empty = Vec::new;
        hello(
            0x0303,
            &[
                0xaaaa, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8,
                0xc013, 0xc014, 0x009c, 0x009d, 0x002f, 0x0035,
            ],
            &[
                (0x4a4a, empty()),
                (0x001b, empty()),
                (0x0000, list(2, b"\0\0\x0bexample.com")),
                (0x0033, empty()),
                (0x0010, list(2, b"\x02h2\x08http/1.1")),
                (0x4469, empty()),
                (0x0017, empty()),
                (0x002d, empty()),
                (
                    0x000d,
                    list(
                        2,
                        &words(&[
                            0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601,
                        ]),
                    ),
                ),
                (0x0005, empty()),
                (0x0023, empty()),
                (0x0012, empty()),
                (0x002b, list(1, &words(&[0x0a0a, 0x0304, 0x0303]))),
                (0xff01, empty()),
                (0x000b, empty()),
                (0x000a, empty()),
                (0x0015, vec![0; 190]),
                (0x8a8a, vec![0]),
            ],
        )
    }

    #[test]
    fn the_example_of_the_specification_has_its_fingerprint() {
        let hello = example();
        assert_eq!(
            ja4(&hello, TlsTransport::Tcp).unwrap(),
            "t13d1516h2_8daaf6152771_e5627efa2ab1"
        );
        assert_eq!(
            ja4(&hello, TlsTransport::Quic).unwrap(),
            "q13d1516h2_8daaf6152771_e5627efa2ab1"
        );
    }

    #[test]
    fn records_may_end_within_the_message() {
        let hello = example();
        for size in [1, 7, 100, 16_384] {
            let mut records: Vec<u8> = hello
                .chunks(size)
                .flat_map(|part| [vec![22, 3, 1], list(2, part)].concat())
                .collect();
            records.extend([20, 3, 3, 0, 1, 1]);
            let found = ja4_of_records(&records);
            assert_eq!(found, ja4(&hello, TlsTransport::Tcp), "{size}");
        }
        assert_eq!(ja4_of_records(b"GET / HTTP/1.1\r\n\r\n"), None);
    }

    #[test]
    fn what_is_missing_and_what_is_strange_has_its_own_marks() {
        for (version, protocol, expected) in [
            (0x0303, &b""[..], "t12i010000_"),
            (0x0301, b"http/1.1", "t10i0101h1_"),
            (0x0300, b"\xab", "ts3i0101ab_"),
            (0x0002, b"\x30\xab", "ts2i01013b_"),
            (0x7f1c, b"\x30\xab\xcd\x31", "t00i010101_"),
        ] {
            let alpn = (ALPN, list(2, &list(1, protocol)));
            let extensions: &[_] = if protocol.is_empty() { &[] } else { &[alpn] };
            let found = ja4(&hello(version, &[0x1301], extensions), TlsTransport::Tcp).unwrap();
            assert!(found.starts_with(expected), "{found} {expected}");
            // No other extension: nothing to hash.
            assert!(found.ends_with("_000000000000"), "{found}");
        }
        let none = ja4(&hello(0x0303, &[], &[]), TlsTransport::Tcp).unwrap();
        assert_eq!(none, "t12i000000_000000000000_000000000000");
        let many = ja4(&hello(0x0303, &[0x1301; 120], &[]), TlsTransport::Tcp).unwrap();
        assert!(many.starts_with("t12i990000_"), "{many}");
    }

    #[test]
    fn what_is_cut_off_has_none() {
        let hello = example();
        for end in 0..hello.len() {
            assert_eq!(ja4(&hello[..end], TlsTransport::Tcp), None, "{end}");
        }
        assert_eq!(ja4(&[2, 0, 0, 0], TlsTransport::Tcp), None);
    }
}
