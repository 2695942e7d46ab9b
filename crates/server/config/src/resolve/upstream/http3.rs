//! What a group of origins over HTTP/3 needs, and what makes no sense with it.

use apus_client::{Address, ClientTlsSettings};
use apus_upstream::plan::NodeTarget;

use super::node::address;
use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::raw::upstream::{Protocol, Upstream};
use crate::source::Setting;

/// Checks a group whose protocol is HTTP/3. `tls` has the TLS settings of its nodes.
pub(super) fn check(
    raw: &Setting<Upstream>,
    tls: &[Option<ClientTlsSettings>],
    reader: &mut ConfigReader<'_>,
) -> Option<()> {
    if *raw.protocol != Protocol::Http3 {
        return Some(());
    }
    let is_unix = |target: &NodeTarget| matches!(target, NodeTarget::Address(Address::Unix(_)));
    let mut nodes = raw.nodes.0.iter();
    let unix = nodes.find(|node| is_unix(&address(node).target));
    let finding = if let Some(node) = unix {
        Finding::error(
            &node.span,
            "HTTP/3 has no Unix sockets",
            "expected a host and a UDP port",
        )
    } else if tls.iter().any(Option::is_none) {
        Finding::error(
            &raw.nodes.span,
            "HTTP/3 has no clear text",
            "expected nodes as \"https://host:port\", or a table `tls` in the group",
        )
    } else if let Some(send_proxy) = &raw.send_proxy {
        Finding::error(
            &send_proxy.span,
            "`send_proxy` has no effect",
            "over HTTP/3, requests of many clients share a connection",
        )
    } else if raw.tls_timeout.given {
        Finding::error(
            &raw.tls_timeout.span,
            "`tls_timeout` has no effect",
            "the handshake of QUIC includes the TLS handshake",
        )
        .help("`connect_timeout` limits both")
    } else {
        return Some(());
    };
    reader.report(finding.related(&raw.protocol.span, "the protocol"));
    None
}
