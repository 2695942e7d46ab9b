//! Without the feature `geo`: no file can be read, and so there is no database.

use std::net::IpAddr;

use crate::fact::FactKind;

/// A database of countries, cities or autonomous systems, of which there is none without the feature `geo`.
#[derive(Debug)]
pub enum GeoDatabase {}

impl GeoDatabase {
    pub(crate) fn has(&self, _: FactKind) -> bool {
        match *self {}
    }

    pub(crate) fn text(&self, _: FactKind, _: IpAddr) -> Option<&str> {
        match *self {}
    }

    pub(crate) fn system(&self, _: IpAddr) -> Option<u32> {
        match *self {}
    }
}
