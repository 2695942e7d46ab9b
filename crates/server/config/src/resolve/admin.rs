//! The address of the operator, and what is counted for it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use apus_control::OperatorAccounts;
use apus_http::Network;
use apus_layers::auth::Users;
use apus_net::ListenAddress;
use apus_net::tls::{ClientAuth, TlsSettings, TlsSite, UnknownName};
use apus_tokens::sha256;

use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::plan::{AdminPlan, AdminTlsPlan, SiteMetricsPlan};
use crate::raw;
use crate::source::Setting;
use crate::string_type::ListenSpec;
use crate::value::Switch;

use super::tls;

/// Who may use a Unix socket of the operator.
const SOCKET_MODE: u32 = 0o600;

/// The plan of the address of the operator; `None`: there is none.
pub(super) fn plan(
    global: &raw::Global,
    sites: &[Setting<raw::Site>],
    reader: &mut ConfigReader<'_>,
) -> Option<AdminPlan> {
    if global.admin_listen.0.is_empty() {
        for (span, is_given, key) in [
            (
                &global.admin_allow.span,
                global.admin_allow.given,
                "admin_allow",
            ),
            (
                &global.admin_names.span,
                global.admin_names.given,
                "admin_names",
            ),
        ] {
            if is_given {
                let message = format!("`{key}` has no effect");
                reader.report(Finding::error(span, message, "there is no `admin_listen`"));
            }
        }
        if let Some(keys) = &global.admin_tls {
            let message = "`admin_tls` has no effect";
            reader.report(Finding::error(
                &keys.span,
                message,
                "there is no `admin_listen`",
            ));
        }
        if let Some(file) = &global.admin_accounts {
            let message = "`admin_accounts` has no effect";
            reader.report(Finding::error(
                &file.span,
                message,
                "there is no `admin_listen`",
            ));
        }
        return None;
    }
    let allowed = &global.admin_allow.0;
    let mut addresses = Vec::new();
    for listen in &global.admin_listen.0 {
        check(listen, !allowed.is_empty(), sites, reader);
        let address = listen.address(false, SOCKET_MODE);
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    let this_machine = || {
        let loopback = Network::Ip {
            address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)),
            bits: 8,
        };
        let loopback6 = Network::Ip {
            address: IpAddr::V6(Ipv6Addr::LOCALHOST),
            bits: 128,
        };
        vec![loopback, loopback6, Network::Unix]
    };
    let allowed: Vec<_> = allowed.iter().map(|network| network.value.0).collect();
    Some(AdminPlan {
        addresses,
        allowed: if allowed.is_empty() {
            this_machine()
        } else {
            allowed
        },
        names: (global.admin_names.0.iter())
            .map(|name| name.value.0.clone())
            .collect(),
        accounts: accounts(global, reader),
        tls: tls_plan(global, reader),
    })
}

/// TLS, if there is any.
fn tls_plan(global: &raw::Global, reader: &mut ConfigReader<'_>) -> Option<AdminTlsPlan> {
    let keys = global.admin_tls.as_ref()?;
    let certificate = tls::certificate(&keys.cert, &keys.key, reader)?;
    let mut bytes = tls::file(&keys.cert, reader)?;
    bytes.extend(tls::file(&keys.key, reader)?);
    let mut site = TlsSite {
        alpn: [&b"h2"[..], b"http/1.1"].map(<[u8]>::to_vec).to_vec(),
        http3: false,
        early_data: false,
        ..TlsSite::new(Vec::new(), vec![certificate])
    };
    if let Some(ca) = &keys.client_ca {
        let pem = tls::file(ca, reader)?;
        let read = ClientAuth::authorities_from_pem(&pem);
        let authorities = read
            .map_err(|fault| reader.report(tls::pem_error(&ca.span, &fault, &ca.value.0)))
            .ok()?;
        bytes.extend(pem);
        site.client_auth = ClientAuth::Optional {
            authorities,
            revoked: Vec::new(),
        };
    }
    match TlsSettings::new(&[site], UnknownName::FirstSite) {
        Ok(settings) => Some(AdminTlsPlan {
            settings: Arc::new(settings),
            digest: sha256(&bytes),
        }),
        Err(error) => {
            let message = error.to_string();
            reader.report(Finding::error(&keys.span, message, "in this table"));
            None
        }
    }
}

/// The accounts of the file, if there is one.
fn accounts(global: &raw::Global, reader: &mut ConfigReader<'_>) -> OperatorAccounts {
    let Some(key) = &global.admin_accounts else {
        return OperatorAccounts::default();
    };
    let Some(bytes) = tls::file(key, reader) else {
        return OperatorAccounts::default();
    };
    tls::warn_of_readers(key, reader);
    let read = match std::str::from_utf8(&bytes) {
        Ok(text) => OperatorAccounts::parse(text),
        Err(_) => Err(vec!["the file is not UTF-8".to_owned()]),
    };
    let (accounts, mut mistakes) = match read {
        Ok(accounts) => (accounts, Vec::new()),
        Err(mistakes) => (OperatorAccounts::default(), mistakes),
    };
    for account in accounts.accounts() {
        let name = account.name.escape_debug();
        if let Some(hash) = &account.password
            && Users::from_htpasswd(&format!("user:{hash}")).is_err()
        {
            mistakes.push(format!(
                "the password of `{name}` is no hash; `apus admin account` writes one"
            ));
        }
    }
    for mistake in mistakes {
        reader.report(Finding::error(&key.span, mistake, "in this file"));
    }
    accounts
}

/// Reports an address that nobody could use, or that a site has.
fn check(
    listen: &Setting<ListenSpec>,
    has_networks: bool,
    sites: &[Setting<raw::Site>],
    reader: &mut ConfigReader<'_>,
) {
    if let ListenSpec::Port(port) = listen.value {
        reader.report(
            Finding::error(
                &listen.span,
                "a port alone would be reachable at all addresses",
                format!("expected an address, as \"127.0.0.1:{port}\""),
            )
            .help(format!(
                "\"[::]:{port}\" with `admin_allow` is all addresses"
            )),
        );
        return;
    }
    let is_public = match listen.value {
        ListenSpec::Tcp(address) => !address.ip().is_loopback(),
        _ => false,
    };
    if is_public && !has_networks {
        reader.report(
            Finding::error(
                &listen.span,
                "only clients of this machine are allowed, and they have no need of this address",
                "expected an address of this machine, as \"127.0.0.1:9180\"",
            )
            .help("`admin_allow` names the networks whose clients are allowed"),
        );
    }
    let of_sites = sites
        .iter()
        .flat_map(|site| site.listen.0.iter().chain(&site.listen_tls.0));
    for other in of_sites {
        if overlap(&listen.value, &other.value) {
            reader.report(
                Finding::error(
                    &listen.span,
                    "a site listens on this address, too",
                    "expected an address of its own",
                )
                .related(&other.span, "the site"),
            );
        }
    }
}

/// Whether a connection to one address could reach the other.
fn overlap(one: &ListenSpec, other: &ListenSpec) -> bool {
    let (Some(one), Some(other)) = (socket_address(one), socket_address(other)) else {
        return one == other;
    };
    let is_wild = |address: SocketAddr| address.ip().is_unspecified();
    one.port() != 0
        && one.port() == other.port()
        && (one.ip() == other.ip() || is_wild(one) || is_wild(other))
}

fn socket_address(listen: &ListenSpec) -> Option<SocketAddr> {
    match listen.address(false, SOCKET_MODE) {
        ListenAddress::Tcp { address, .. } => Some(address),
        ListenAddress::Unix { .. } | ListenAddress::Inherited { .. } => None,
    }
}

/// How many of the last requests of each worker are kept. To know of the end of each response costs as much as the record itself, and where
/// metrics are counted, that is known anyway.
pub(super) fn explained_requests(global: &raw::Global) -> usize {
    const DEFAULT: usize = 1024;
    match &global.explain_requests {
        Some(count) => count.value.size(),
        None if global.admin_listen.0.is_empty() => 0,
        None => DEFAULT,
    }
}

/// What is counted of sites; `None`: nothing.
pub(super) fn metrics(
    global: &raw::Global,
    reader: &mut ConfigReader<'_>,
) -> Option<SiteMetricsPlan> {
    let keys = if global.metrics.given {
        global.metrics.table(&global.metrics.span, reader)
    } else if global.admin_listen.0.is_empty() && global.otlp.is_none() {
        None
    } else {
        Switch::On.table(&global.metrics.span, reader)
    };
    keys.map(|keys: raw::SiteMetricKeys| SiteMetricsPlan {
        max_sites: keys.sites.size(),
    })
}
