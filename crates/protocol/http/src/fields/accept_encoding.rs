//! Content codings, and `Accept-Encoding` (RFC 9110 sections 8.4.1 and 12.5.3).

use super::quality::{Quality, weigh};
use crate::list;

/// A content coding (RFC 9110 section 8.4.1) that this server can produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Coding {
    /// `br` (RFC 7932).
    Brotli,
    /// `zstd` (RFC 8878).
    Zstd,
    /// `gzip` (RFC 1952).
    Gzip,
    /// No coding at all.
    Identity,
}

impl Coding {
    /// Every coding, the one with the smallest output first.
    pub const ALL: [Self; 4] = [Self::Brotli, Self::Zstd, Self::Gzip, Self::Identity];

    /// The name in `Content-Encoding`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
            Self::Identity => "identity",
        }
    }

    fn from_name(name: &[u8]) -> Option<Self> {
        if name.eq_ignore_ascii_case(b"x-gzip") {
            // RFC 9110 section 8.4.1.3.
            return Some(Self::Gzip);
        }
        Self::ALL
            .into_iter()
            .find(|coding| name.eq_ignore_ascii_case(coding.as_str().as_bytes()))
    }
}

/// The quality of each [`Coding`] for a client. Two clients that get the same responses compare equal,
/// even if their fields differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AcceptEncoding {
    qualities: [Quality; 4],
}

impl AcceptEncoding {
    /// The value of a client that sends no field: no coding.
    pub const IDENTITY: Self = Self {
        qualities: [
            Quality::NONE,
            Quality::NONE,
            Quality::NONE,
            Quality::IMPLIED,
        ],
    };

    /// Reads the values of all `Accept-Encoding` lines. Invalid members count as absent; the first one of
    /// repeated members counts.
    pub fn parse<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut named = [None; 4];
        let mut others = None;
        for member in values.flat_map(list::members) {
            let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let Some((quality, false)) = weigh(parts) else {
                continue;
            };
            let slot = if name == b"*" {
                Some(&mut others)
            } else {
                Coding::from_name(name).and_then(|coding| named.get_mut(coding as usize))
            };
            if let Some(slot) = slot {
                slot.get_or_insert(quality);
            }
        }
        let mut qualities = Self::IDENTITY.qualities;
        for (quality, named) in qualities.iter_mut().zip(named) {
            *quality = named.or(others).unwrap_or(*quality);
        }
        Self { qualities }
    }

    /// Whether the client accepts this coding.
    pub fn accepts(&self, coding: Coding) -> bool {
        self.quality(coding) > Quality::NONE
    }

    /// The accepted codings, the highest quality first; codings of the same quality in the order of
    /// [`Coding::ALL`].
    pub fn preferred(&self) -> impl Iterator<Item = Coding> {
        let mut codings = Coding::ALL;
        codings.sort_by_key(|coding| std::cmp::Reverse(self.quality(*coding)));
        let accepted = *self;
        codings
            .into_iter()
            .filter(move |coding| accepted.accepts(*coding))
    }

    /// Chooses the coding of `offered` with the highest quality, and the first one of several with the same.
    pub fn choose(&self, offered: &[Coding]) -> Option<Coding> {
        let mut best = None;
        for coding in offered {
            let quality = self.quality(*coding);
            if quality > best.map_or(Quality::NONE, |(quality, _)| quality) {
                best = Some((quality, *coding));
            }
        }
        best.map(|(_, coding)| coding)
    }

    fn quality(&self, coding: Coding) -> Quality {
        self.qualities
            .get(coding as usize)
            .copied()
            .unwrap_or(Quality::NONE)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn preferred(value: &str) -> Vec<&'static str> {
        AcceptEncoding::parse([value.as_bytes()].into_iter())
            .preferred()
            .map(Coding::as_str)
            .collect()
    }

    #[test]
    fn orders_by_quality_then_by_size() {
        for (value, order) in [
            (
                "gzip, deflate, br, zstd",
                &["br", "zstd", "gzip", "identity"][..],
            ),
            ("gzip;q=1.0, br;q=0.5", &["gzip", "br", "identity"]),
            ("gzip;q=0.001, br;q=0", &["gzip", "identity"]),
            ("GZIP ; Q=0.8,x-gzip;q=0", &["gzip", "identity"]),
            ("identity, gzip;q=0.5", &["identity", "gzip"]),
            ("gzip, identity", &["gzip", "identity"]),
            ("*", &["br", "zstd", "gzip", "identity"]),
            ("*;q=0.5, gzip", &["gzip", "br", "zstd", "identity"]),
            ("", &["identity"]),
            (",, ,", &["identity"]),
            ("deflate, compress", &["identity"]),
        ] {
            assert_eq!(preferred(value), order, "{value}");
        }
    }

    #[test]
    fn identity_is_refused_only_by_an_explicit_weight() {
        assert_eq!(preferred("identity;q=0"), [""; 0]);
        assert_eq!(preferred("*;q=0"), [""; 0]);
        assert_eq!(preferred("gzip, *;q=0"), ["gzip"]);
        assert_eq!(preferred("gzip, identity;q=0"), ["gzip"]);
        assert_eq!(preferred("identity;q=0.5, *;q=0"), ["identity"]);
        assert_eq!(preferred("gzip;q=0.2, *;q=0.000"), ["gzip"]);
    }

    #[test]
    fn ignores_members_with_an_invalid_weight() {
        for value in [
            "gzip;q=2",
            "gzip;q=",
            "gzip;q=0.1234",
            "gzip;q=-1",
            "gzip;q=1.001",
            "gzip;q=a",
            "gzip;level=1",
            "gz ip",
        ] {
            assert_eq!(preferred(value), ["identity"], "{value}");
        }
    }

    #[test]
    fn chooses_among_the_offered_codings() {
        let accept = AcceptEncoding::parse([&b"br, gzip"[..]].into_iter());
        assert_eq!(
            accept.choose(&[Coding::Gzip, Coding::Brotli]),
            Some(Coding::Gzip)
        );
        assert_eq!(
            accept.choose(&[Coding::Identity, Coding::Brotli]),
            Some(Coding::Brotli)
        );
        assert_eq!(accept.choose(&[Coding::Zstd]), None);
        assert_eq!(
            AcceptEncoding::IDENTITY.choose(&Coding::ALL),
            Some(Coding::Identity)
        );
    }

    #[test]
    fn joins_several_lines() {
        let accept = AcceptEncoding::parse([&b"gzip;q=0.5"[..], b"br;q=0.6"].into_iter());
        assert_eq!(accept.preferred().next(), Some(Coding::Brotli));
    }

    proptest! {
        #[test]
        fn never_prefers_a_refused_coding(value in "[a-z*;=,.q01 ]{0,40}") {
            let accept = AcceptEncoding::parse([value.as_bytes()].into_iter());
            prop_assert!(accept.preferred().all(|coding| accept.accepts(coding)));
            prop_assert_eq!(
                accept.choose(&Coding::ALL),
                accept.preferred().next()
            );
        }
    }
}
