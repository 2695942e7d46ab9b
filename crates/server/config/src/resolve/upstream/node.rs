//! The nodes of a group: their addresses and TLS.

use apus_client::{Address, ClientTlsSettings, Tls};
use apus_net::tls::ClientAuth;
use apus_transport::tls::MinVersion;
use apus_upstream::plan::{self, AdminState, NodePlan};

use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, shown};
use crate::raw::TlsVersion;
use crate::raw::upstream::{NodeEntry, Upstream, UpstreamTls};
use crate::resolve::{small, tls};
use crate::source::{Setting, SourceSpan};
use crate::string_type::origin::NodeAddress;
use crate::value::FilePath;

/// The nodes, and the TLS of each.
pub(super) type Nodes = (Vec<NodePlan>, Vec<Option<ClientTlsSettings>>);

/// The nodes of a group, in their order.
pub(super) fn nodes(raw: &Setting<Upstream>, reader: &mut ConfigReader<'_>) -> Option<Nodes> {
    if raw.nodes.0.is_empty() {
        reader.report(Finding::error(
            &raw.nodes.span,
            "the group has no nodes",
            "expected at least one address",
        ));
        return None;
    }
    let tls = GroupTls::of(raw, reader)?;
    let mut nodes: Vec<(NodePlan, &SourceSpan)> = Vec::new();
    let mut settings = Vec::new();
    let mut is_right = true;
    for entry in &raw.nodes.0 {
        let Some(node) = node(entry, reader) else {
            is_right = false;
            continue;
        };
        if let Some((_, other)) = nodes.iter().find(|(other, _)| other.name == node.name) {
            reader.report(
                Finding::error(
                    &entry.span,
                    format!("two nodes of the group are called `{}`", shown(&node.name)),
                    "expected another address or `name`",
                )
                .related(other, "the other one"),
            );
            is_right = false;
            continue;
        }
        nodes.push((node, &entry.span));
        match tls.settings(address(entry), &entry.span, reader) {
            Some(tls) => settings.push(tls),
            None => is_right = false,
        }
    }
    let nodes = nodes.into_iter().map(|(node, _)| node).collect();
    is_right.then_some((nodes, settings))
}

/// The single node of a URL.
pub(super) fn alone(
    address: &Setting<NodeAddress>,
    ca: Option<&Setting<FilePath>>,
    reader: &mut ConfigReader<'_>,
) -> Option<(NodePlan, Option<ClientTlsSettings>)> {
    let tls = match address.tls {
        Some(true) => {
            let mut settings = ClientTlsSettings::new(address.host().unwrap_or_default());
            if let Some(ca) = ca {
                settings = trusting(ca, settings, reader)?;
            }
            Some(ready(settings, &address.span, reader)?)
        }
        _ => None,
    };
    let node = NodePlan::new(address.text.as_str(), address.target.clone());
    Some((node, tls))
}

fn node(entry: &NodeEntry, reader: &mut ConfigReader<'_>) -> Option<NodePlan> {
    let raw = match entry {
        NodeEntry::Address(address) => {
            return Some(NodePlan::new(address.text.as_str(), address.target.clone()));
        }
        NodeEntry::Table(table) => table,
    };
    let admin = match (*raw.drain, *raw.down) {
        (true, true) => {
            reader.report(
                Finding::error(
                    &raw.drain.span,
                    "`drain` and `down` exclude each other",
                    "expected one of them",
                )
                .related(&raw.down.span, "the other one"),
            );
            return None;
        }
        (true, false) => AdminState::Drain,
        (false, true) => AdminState::Down,
        (false, false) => AdminState::Up,
    };
    let name = raw.name.as_ref().map_or(&raw.addr.text, |name| &name.0);
    Some(NodePlan {
        name: name.as_str().into(),
        target: raw.addr.target.clone(),
        // Created from the settings when the plan is applied.
        tls: None,
        weight: small(raw.weight.0),
        backup: *raw.backup,
        admin,
        max_requests: small(raw.max_conns.0),
    })
}

/// The address of a node.
pub(super) fn address(entry: &NodeEntry) -> &NodeAddress {
    match entry {
        NodeEntry::Address(address) => address,
        NodeEntry::Table(table) => &table.addr,
    }
}

/// Whether the address of the node has to be resolved.
pub(super) fn is_name(entry: &NodeEntry) -> bool {
    matches!(
        &address(entry).target,
        plan::NodeTarget::Name { .. } | plan::NodeTarget::Service(_)
    )
}

/// TLS of all nodes of a group.
enum GroupTls {
    None,
    All {
        /// The settings for all nodes, with the server name if it is given.
        settings: ClientTlsSettings,
        server_name: Option<String>,
        span: SourceSpan,
    },
}

impl GroupTls {
    fn of(raw: &Setting<Upstream>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let nodes = &raw.nodes.0;
        let first = |tls: Option<bool>| nodes.iter().find(|node| address(node).tls == tls);
        let (secure, clear, unsaid) = (first(Some(true)), first(Some(false)), first(None));
        let contrary = match (&raw.tls, secure) {
            (None, None) => return Some(Self::None),
            (Some(_), _) => clear,
            (None, Some(_)) => clear.or(unsaid),
        };
        if let Some(node) = contrary {
            let (span, what) = match (&raw.tls, secure) {
                (Some(tls), _) => (&tls.span, "the group has a table `tls`"),
                (None, Some(other)) => (&other.span, "this one is `https`"),
                (None, None) => (&node.span, ""),
            };
            reader.report(
                Finding::error(
                    &node.span,
                    "nodes with and without TLS in one group",
                    "this one is in clear text",
                )
                .related(span, what)
                .help("write all of them as \"https://host:port\", or none"),
            );
            return None;
        }
        let Some(raw_tls) = &raw.tls else {
            return Some(Self::All {
                settings: ClientTlsSettings::new(""),
                server_name: None,
                span: raw.span.clone(),
            });
        };
        Some(Self::All {
            settings: settings(raw_tls, reader)?,
            server_name: raw_tls.server_name.as_ref().map(|name| name.0.clone()),
            span: raw_tls.span.clone(),
        })
    }

    /// TLS of one node. The outer `None` is for errors.
    fn settings(
        &self,
        address: &NodeAddress,
        at: &SourceSpan,
        reader: &mut ConfigReader<'_>,
    ) -> Option<Option<ClientTlsSettings>> {
        let Self::All {
            settings,
            server_name,
            span,
        } = self
        else {
            return Some(None);
        };
        let Some(name) = server_name.clone().or_else(|| address.host()) else {
            let what = match &address.target {
                plan::NodeTarget::Address(Address::Unix(_)) => "a Unix socket has none",
                _ => "what a service stands for may change",
            };
            reader.report(
                Finding::error(span, "no name that certificates have to be for", what)
                    .related(at, "this node")
                    .help("add server_name = \"example.com\" to the table `tls` of the group"),
            );
            return None;
        };
        let settings = ClientTlsSettings {
            server_name: name,
            ..settings.clone()
        };
        ready(
            settings,
            if server_name.is_some() { span } else { at },
            reader,
        )
        .map(Some)
    }
}

/// The settings of the table, without the server name.
fn settings(
    raw: &Setting<UpstreamTls>,
    reader: &mut ConfigReader<'_>,
) -> Option<ClientTlsSettings> {
    if reader.has_wrong(&raw.span, &["ca", "cert", "key", "verify"]) {
        return None;
    }
    if let Some(ca) = raw.ca.as_ref().filter(|_| !*raw.verify) {
        reader.report(
            Finding::error(
                &ca.span,
                "`ca` has no effect",
                "the certificates of nodes are not verified",
            )
            .related(&raw.verify.span, "here"),
        );
        return None;
    }
    let certificate = match (&raw.cert, &raw.key) {
        (None, None) => None,
        (Some(cert), Some(key)) => Some(tls::certificate(cert, key, reader)?),
        (Some(one), None) | (None, Some(one)) => {
            reader.report(Finding::error(
                &one.span,
                "`cert` and `key` belong together",
                "the other one is missing",
            ));
            return None;
        }
    };
    let settings = ClientTlsSettings {
        verify: *raw.verify,
        certificate,
        min_version: match *raw.min_version {
            TlsVersion::Tls12 => MinVersion::Tls12,
            TlsVersion::Tls13 => MinVersion::Tls13,
        },
        ..ClientTlsSettings::new("")
    };
    match &raw.ca {
        None => Some(settings),
        Some(ca) => trusting(ca, settings, reader),
    }
}

/// The settings with the authorities in a file.
pub(in crate::resolve) fn trusting(
    ca: &Setting<FilePath>,
    settings: ClientTlsSettings,
    reader: &mut ConfigReader<'_>,
) -> Option<ClientTlsSettings> {
    match ClientAuth::authorities_from_pem(&tls::file(ca, reader)?) {
        Ok(authorities) => Some(ClientTlsSettings {
            authorities: Some(authorities),
            ..settings
        }),
        Err(fault) => {
            reader.report(tls::pem_error(&ca.span, &fault, &ca.value.0));
            None
        }
    }
}

/// The settings, if TLS can be set up with them.
fn ready(
    settings: ClientTlsSettings,
    span: &SourceSpan,
    reader: &mut ConfigReader<'_>,
) -> Option<ClientTlsSettings> {
    match Tls::new(&settings) {
        Ok(_) => Some(settings),
        Err(error) => {
            reader.report(Finding::error(
                span,
                error.to_string(),
                "TLS to this node needs it",
            ));
            None
        }
    }
}
