//! `GeoDatabase`: a file in the format MaxMind DB, which says where networks are.

use std::fmt;
use std::net::IpAddr;

use maxminddb::{PathElement, Reader};

use crate::fact::FactKind;

/// A database of countries, cities or autonomous systems, such as `GeoLite2-Country.mmdb`.
pub struct GeoDatabase {
    reader: Reader<Vec<u8>>,
    contents: GeoContents,
}

/// What a database can say of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GeoContents {
    has_countries: bool,
    has_cities: bool,
    has_systems: bool,
}

/// Why bytes are no database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidGeoDatabase(String);

impl GeoDatabase {
    /// Reads a database from the bytes of its file.
    ///
    /// # Errors
    /// The bytes are no database, or are damaged where its form is described.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, InvalidGeoDatabase> {
        let reader =
            Reader::from_source(bytes).map_err(|error| InvalidGeoDatabase(error.to_string()))?;
        let contents = GeoContents::of(&reader.metadata().database_type);
        Ok(Self { reader, contents })
    }

    /// The kind of database as its maker names it: `GeoLite2-Country`.
    pub fn kind(&self) -> &str {
        &self.reader.metadata().database_type
    }

    /// When it was made, in seconds since 1970.
    pub fn built(&self) -> u64 {
        self.reader.metadata().build_epoch
    }

    /// Whether it can know a fact.
    pub(crate) fn has(&self, fact: FactKind) -> bool {
        self.contents.have(fact)
    }

    /// The text of a fact for an address.
    pub(crate) fn text(&self, fact: FactKind, ip: IpAddr) -> Option<&str> {
        let paths = paths(fact)?;
        let found = self.reader.lookup(ip).ok()?;
        paths
            .iter()
            .find_map(|path| found.decode_path::<&str>(path).ok().flatten())
    }

    /// The number of the autonomous system of an address.
    pub(crate) fn system(&self, ip: IpAddr) -> Option<u32> {
        let found = self.reader.lookup(ip).ok()?;
        let number = SYSTEM_NUMBER
            .iter()
            .find_map(|path| found.decode_path::<u32>(path).ok().flatten());
        let text = || found.decode_path::<&str>(SYSTEM_TEXT).ok().flatten();
        number.or_else(|| text()?.strip_prefix("AS")?.parse().ok())
    }
}

impl GeoContents {
    /// By the kind of database: of a kind that is not known here, all is possible.
    fn of(kind: &str) -> Self {
        let has = |names: &[&str]| names.iter().any(|name| kind.contains(name));
        let found = Self {
            has_countries: has(&["Country", "City", "Location", "Enterprise"]),
            has_cities: has(&["City", "Location", "Enterprise"]),
            has_systems: has(&["ASN", "ISP", "Enterprise"]),
        };
        if found.has_countries || found.has_systems {
            return found;
        }
        Self {
            has_countries: true,
            has_cities: true,
            has_systems: true,
        }
    }

    fn have(self, fact: FactKind) -> bool {
        match fact {
            FactKind::GeoCountry | FactKind::GeoContinent => self.has_countries,
            FactKind::GeoCity | FactKind::GeoSubdivision => self.has_cities,
            FactKind::GeoSystem | FactKind::GeoSystemName => self.has_systems,
            _ => false,
        }
    }
}

const SYSTEM_NUMBER: &[&[PathElement<'_>]] = &[
    &[PathElement::Key("autonomous_system_number")],
    &[
        PathElement::Key("traits"),
        PathElement::Key("autonomous_system_number"),
    ],
];

/// Databases of ipinfo.io have `AS64500`.
const SYSTEM_TEXT: &[PathElement<'_>] = &[PathElement::Key("asn")];

/// Where the text of a fact is: as MaxMind and DB-IP have it, then as flat databases do (ipinfo.io, ip-location-db).
fn paths(fact: FactKind) -> Option<&'static [&'static [PathElement<'static>]]> {
    use PathElement::{Index, Key};
    Some(match fact {
        FactKind::GeoCountry => &[
            &[Key("country"), Key("iso_code")],
            &[Key("country_code")],
            &[Key("country")],
        ],
        FactKind::GeoContinent => &[&[Key("continent"), Key("code")], &[Key("continent_code")]],
        FactKind::GeoCity => &[&[Key("city"), Key("names"), Key("en")], &[Key("city")]],
        FactKind::GeoSubdivision => &[
            &[Key("subdivisions"), Index(0), Key("iso_code")],
            &[Key("region_code")],
        ],
        FactKind::GeoSystemName => &[
            &[Key("autonomous_system_organization")],
            &[Key("traits"), Key("autonomous_system_organization")],
            &[Key("as_name")],
        ],
        _ => return None,
    })
}

impl fmt::Debug for GeoDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GeoDatabase({}, {})", self.kind(), self.built())
    }
}

impl fmt::Display for InvalidGeoDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it is no MaxMind DB: {}", self.0)
    }
}

impl std::error::Error for InvalidGeoDatabase {}
