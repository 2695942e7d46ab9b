//! The configuration of endpoints and connections.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::hmac;
use rustls::quic::Suite;

use crate::frame::MAX_STREAM_COUNT;
use crate::observer::StartObserver;
use crate::remote_ids::MAX_REMOTE_IDS;
use crate::tls::StartTlsSession;
use crate::token::TokenKey;
use crate::transport_parameters::TransportParameters;
use crate::varint;
use crate::version::QuicVersion;

/// A congestion controller (RFC 9002 section 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionAlgorithm {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// BBR.
    Bbr,
}

/// What a connection allows its peer, and how it sends.
#[derive(Clone, Debug)]
pub struct TransportConfig {
    /// Bytes that the peer may send over all streams before they are read.
    pub receive_window: u64,
    /// Bytes that the peer may send over one stream before they are read.
    pub stream_receive_window: u64,
    /// Bytes that may be written over all streams before the peer acknowledges them.
    pub send_window: u64,
    /// A connection without packets for this time ends; `None` for no such timeout.
    pub max_idle_timeout: Option<Duration>,
    /// After this time without packets, a PING is sent.
    pub keep_alive: Option<Duration>,
    /// The most bidirectional streams of the peer that are open at a time.
    pub max_bidirectional_streams: u64,
    /// The most unidirectional streams of the peer that are open at a time.
    pub max_unidirectional_streams: u64,
    /// The congestion controller.
    pub congestion: CongestionAlgorithm,
    /// Bytes that a new connection may have in flight.
    pub initial_window: u64,
    /// Observes connections; `None` costs one branch for each event.
    pub observer: Option<Arc<dyn StartObserver>>,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            receive_window: 2 << 20,
            stream_receive_window: 1 << 20,
            send_window: 2 << 20,
            max_idle_timeout: Some(Duration::from_secs(30)),
            keep_alive: None,
            max_bidirectional_streams: 100,
            max_unidirectional_streams: 8,
            congestion: CongestionAlgorithm::default(),
            initial_window: 12_000,
            observer: None,
        }
    }
}

/// The configuration of an endpoint.
#[derive(Clone)]
pub struct EndpointConfig {
    /// The key of stateless reset tokens (RFC 9000 section 10.3.2).
    pub reset_key: Arc<hmac::Key>,
    /// `TLS13_AES_128_GCM_SHA256`, which protects Initial packets (RFC 9001 section 5.2).
    pub initial_suite: Suite,
    /// Whether packets are never fragmented, so that the path MTU can be discovered.
    pub can_discover_mtu: bool,
    /// Makes random decisions the same in each run, for tests. Nothing secret depends on it.
    pub seed: Option<u64>,
}

impl fmt::Debug for EndpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointConfig")
            .field("can_discover_mtu", &self.can_discover_mtu)
            .finish_non_exhaustive()
    }
}

/// The configuration of server connections.
#[derive(Clone)]
pub struct ServerConfig {
    /// Makes their TLS.
    pub tls: Arc<dyn StartTlsSession>,
    /// The key of tokens.
    pub tokens: Arc<TokenKey>,
    /// Their limits.
    pub transport: Arc<TransportConfig>,
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

/// The configuration of a client connection.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// TLS.
    pub tls: Arc<rustls::ClientConfig>,
    /// The tokens of servers.
    pub tokens: Arc<TokenStore>,
    /// Its limits.
    pub transport: Arc<TransportConfig>,
    /// The version of QUIC, which is not negotiated. Sessions and tokens are those of one version.
    pub version: QuicVersion,
}

/// Server names of which tokens are kept, and how many of each.
const TOKEN_NAMES: usize = 256;
const TOKENS_OF_A_NAME: usize = 2;

/// The tokens by which a client proves its address to servers that it knows (RFC 9000 section 8.1.3): the last two of each
/// of 256 servers.
#[derive(Default)]
pub struct TokenStore {
    /// The server that was used last is the last one.
    servers: Mutex<Vec<(String, Vec<Vec<u8>>)>>,
}

impl TokenStore {
    /// Keeps a token.
    pub(crate) fn insert(&self, server_name: &str, token: &[u8]) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = servers.iter().position(|(name, _)| name == server_name);
        let (name, mut tokens) = match known {
            Some(index) => servers.remove(index),
            None => (server_name.to_owned(), Vec::new()),
        };
        if tokens.len() == TOKENS_OF_A_NAME {
            tokens.remove(0);
        }
        tokens.push(token.to_vec());
        if servers.len() == TOKEN_NAMES {
            servers.remove(0);
        }
        servers.push((name, tokens));
    }

    /// Takes the last token: each is used once.
    pub(crate) fn take(&self, server_name: &str) -> Option<Vec<u8>> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let index = servers.iter().position(|(name, _)| name == server_name)?;
        let (_, tokens) = servers.get_mut(index)?;
        let token = tokens.pop();
        if tokens.is_empty() {
            servers.remove(index);
        }
        token
    }
}

impl fmt::Debug for TokenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenStore")
    }
}

/// The transport parameters that follow from the configuration.
pub(crate) fn transport_parameters(config: &TransportConfig) -> TransportParameters {
    let idle = config
        .max_idle_timeout
        .map_or(0, |timeout| timeout.as_millis());
    let limit = |value: u64| value.min(varint::MAX);
    TransportParameters {
        max_idle_timeout: limit(u64::try_from(idle).unwrap_or(u64::MAX)),
        max_data: limit(config.receive_window),
        max_stream_data_bidi_local: limit(config.stream_receive_window),
        max_stream_data_bidi_remote: limit(config.stream_receive_window),
        max_stream_data_uni: limit(config.stream_receive_window),
        max_streams_bidi: config.max_bidirectional_streams.min(MAX_STREAM_COUNT),
        max_streams_uni: config.max_unidirectional_streams.min(MAX_STREAM_COUNT),
        active_connection_id_limit: MAX_REMOTE_IDS as u64,
        grease_quic_bit: true,
        ..TransportParameters::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tokens_of_a_server_are_used_once() {
        let store = TokenStore::default();
        for token in [b"1", b"2", b"3"] {
            store.insert("a", token);
        }
        assert_eq!(store.take("b"), None);
        for token in [b"3", b"2"] {
            assert_eq!(store.take("a"), Some(token.to_vec()));
        }
        assert_eq!(store.take("a"), None);
    }

    #[test]
    fn the_server_that_was_not_used_longest_is_forgotten() {
        let store = TokenStore::default();
        for name in 0..TOKEN_NAMES {
            store.insert(&name.to_string(), b"1");
        }
        store.insert("0", b"2");
        store.insert("new", b"1");
        assert_eq!(store.take("1"), None);
        assert!(store.take("0").is_some() && store.take("2").is_some());
    }
}
