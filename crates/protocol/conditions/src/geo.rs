//! `GeoDatabases`: where the networks of clients are, by databases that complete each other.

use std::net::IpAddr;
use std::sync::Arc;

use crate::fact::FactKind;
use crate::geo_database::GeoDatabase;

/// Databases that complete each other: the first that knows a fact of an address decides.
#[derive(Debug, Default)]
pub struct GeoDatabases {
    databases: Vec<Arc<GeoDatabase>>,
    is_incomplete: bool,
}

impl GeoDatabases {
    /// Databases, the one that is asked first at the beginning.
    pub fn new(databases: impl IntoIterator<Item = Arc<GeoDatabase>>) -> Self {
        Self {
            databases: databases.into_iter().collect(),
            is_incomplete: false,
        }
    }

    /// That others could not be read, which was said: a fact that none of these has is no further mistake.
    #[must_use]
    pub fn incomplete(self) -> Self {
        Self {
            is_incomplete: true,
            ..self
        }
    }

    /// The databases.
    pub fn databases(&self) -> impl Iterator<Item = &GeoDatabase> {
        self.databases.iter().map(|database| &**database)
    }

    /// Whether one of the databases can have this fact.
    pub fn have(&self, fact: FactKind) -> bool {
        self.is_incomplete || self.that_have(fact).next().is_some()
    }

    /// The text of a fact for an address, which may be an IPv4 address within IPv6.
    pub fn text(&self, fact: FactKind, ip: IpAddr) -> Option<&str> {
        let ip = ip.to_canonical();
        self.that_have(fact)
            .find_map(|database| database.text(fact, ip))
    }

    /// The number of the autonomous system of an address.
    pub fn system(&self, ip: IpAddr) -> Option<u32> {
        let ip = ip.to_canonical();
        self.that_have(FactKind::GeoSystem)
            .find_map(|database| database.system(ip))
    }

    fn that_have(&self, fact: FactKind) -> impl Iterator<Item = &GeoDatabase> {
        self.databases().filter(move |database| database.has(fact))
    }
}
