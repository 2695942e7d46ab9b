//! Fuzz target of databases of places.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use apus_conditions::{FACTS, GeoDatabase, GeoDatabases};

/// A file in the format MaxMind DB: what is no database is said, and looking up ends, whatever the records point to. An address is the
/// same within IPv6.
pub fn geo_database(data: &[u8]) {
    let Ok(database) = GeoDatabase::parse(data.to_vec()) else {
        return;
    };
    let databases = GeoDatabases::new([Arc::new(database)]);
    let ends = [
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(192, 0, 2, 1),
    ];
    for ip in ends {
        let within = IpAddr::V6(ip.to_ipv6_mapped());
        for fact in FACTS.iter().filter(|fact| fact.is_geo()) {
            let found = databases.text(*fact, ip.into());
            assert!(found.is_none() || databases.have(*fact));
            assert_eq!(found, databases.text(*fact, within));
        }
        assert_eq!(databases.system(ip.into()), databases.system(within));
    }
    for ip in [Ipv6Addr::LOCALHOST, Ipv6Addr::from_bits(0x2001_0db8 << 96)] {
        for fact in FACTS {
            databases.text(*fact, ip.into());
        }
        databases.system(ip.into());
    }
}
