//! `SiteQuic` without the feature `http3`: no site has it.

use std::convert::Infallible;
use std::sync::Arc;

use apus_transport::tls::TlsError;
use rustls::ServerConfig;

use super::sessions::TlsSessions;

pub(super) struct SiteQuic(Infallible);

impl SiteQuic {
    pub(super) fn new(
        _: &ServerConfig,
        _early_data: bool,
        _: &TlsSessions,
        _: &Arc<[Box<str>]>,
    ) -> Result<Self, TlsError> {
        Err(TlsError::new(
            "there is no HTTP/3 without the feature `http3`",
        ))
    }
}
