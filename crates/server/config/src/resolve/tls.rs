//! The keys of TLS of a site; certificates are read here, so that errors in them are reported with
//! their place.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use apus_acme::ManagedCertificate;
use apus_net::tls::{ClientAuth, TlsPolicy, TlsSettings, TlsSite, UnknownName};
use apus_net::{Http3Settings, ListenAddress};
use apus_transport::tls::{Certificate, MinVersion, PemFault};

use super::acme::AcmeDefaults;
use super::http3;
use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, ConfigTable};
use crate::plan::{CertificateOrigin, OnDemandPlan};
use crate::raw::{self, Site, Tls, TlsPolicyName, TlsVersion};
use crate::source::{Setting, SourceSpan};
use crate::string_type::SiteHost;
use crate::value::FilePath;

/// A certificate that expires in fewer seconds gets a warning.
const EXPIRES_SOON: i64 = 14 * DAY;
const DAY: i64 = 86_400;

/// TLS of a site.
pub(super) struct ResolvedTls {
    pub(super) tls: TlsSite,
    /// HTTP/3, if the site offers that.
    pub(super) http3: Option<Http3Settings>,
    /// The certificates that are ordered by ACME.
    pub(super) acme: Vec<ManagedCertificate>,
    /// Whether each name has its own certificate.
    pub(super) is_certified_by_name: bool,
    /// Certificates on demand.
    pub(super) on_demand: Option<OnDemandPlan>,
    /// Where the certificates come from otherwise.
    pub(super) origin: Option<CertificateOrigin>,
}

/// TLS of the site; `None` if it has none, or errors were reported.
pub(super) fn site(
    site: &Setting<Site>,
    defaults: &AcmeDefaults,
    reader: &mut ConfigReader<'_>,
) -> Option<ResolvedTls> {
    match (&site.tls, site.listen_tls.0.first()) {
        (None, None) => None,
        _ if reader.has_wrong(&site.span, &["tls", "listen_tls"]) => None,
        (Some(tls), None) => {
            reader.report(
                Finding::error(
                    &tls.span,
                    "`tls` has no effect",
                    "the site has no `listen_tls`",
                )
                .help("add listen_tls = 443 to the site"),
            );
            None
        }
        (None, Some(listen)) => {
            let tls = Setting {
                value: Tls::absent(&site.span, reader)?,
                span: listen.span.clone(),
                given: false,
            };
            settings(site, &tls, defaults, reader)
        }
        (Some(tls), Some(_)) => settings(site, tls, defaults, reader),
    }
}

fn settings(
    site: &Setting<Site>,
    tls: &Setting<Tls>,
    defaults: &AcmeDefaults,
    reader: &mut ConfigReader<'_>,
) -> Option<ResolvedTls> {
    let certificates = certificates(site, tls, defaults, reader);
    let http3 = http3::of_site(tls, reader);
    refuse_patterns(site, tls, reader);
    refuse_old_versions(tls, reader);
    let client_auth = client_auth(tls, reader)?;
    let mut on_demand = None;
    let (certificates, acme, origin) = match certificates? {
        SiteCertificates::Known(certificates, origin) => {
            warn_of_uncovered(site, &certificates, reader);
            (certificates, Vec::new(), Some(origin))
        }
        SiteCertificates::Ordered(managed) => (Vec::new(), managed, None),
        SiteCertificates::OnDemand(plan) => {
            on_demand = Some(*plan);
            (Vec::new(), Vec::new(), None)
        }
    };
    let settings = TlsSite {
        names: names(site, &certificates),
        certificates,
        client_auth,
        min_version: match *tls.min_version {
            TlsVersion::Tls12 => MinVersion::Tls12,
            TlsVersion::Tls13 => MinVersion::Tls13,
        },
        policy: match *tls.policy {
            TlsPolicyName::Modern => TlsPolicy::Modern,
            TlsPolicyName::Intermediate => TlsPolicy::Intermediate,
            TlsPolicyName::Legacy => TlsPolicy::Legacy,
        },
        alpn: alpn(tls, reader)?,
        key_log: None,
        http3: http3.is_some(),
        early_data: http3.as_ref().is_some_and(|(_, early_data)| *early_data),
    };
    match TlsSettings::new(std::slice::from_ref(&settings), UnknownName::FirstSite) {
        Ok(_) => Some(ResolvedTls {
            tls: settings,
            http3: http3.map(|(settings, _)| settings),
            is_certified_by_name: !acme.is_empty() && defaults.is_per_name(tls),
            acme,
            on_demand,
            origin,
        }),
        Err(error) => {
            reader.report(Finding::error(
                &tls.span,
                error.to_string(),
                "in this table",
            ));
            None
        }
    }
}

/// The protocols that the site offers over TCP by ALPN (RFC 7301).
fn alpn(tls: &Setting<Tls>, reader: &mut ConfigReader<'_>) -> Option<Vec<Vec<u8>>> {
    if tls.protocols.0.is_empty() {
        reader.report(Finding::error(
            &tls.protocols.span,
            "no protocol is offered",
            "expected \"h3\", \"h2\" or \"http/1.1\", or several",
        ));
        return None;
    }
    let names = tls.protocols.0.iter().flat_map(|protocol| {
        let names: &[&str] = match protocol.value {
            // Over UDP.
            raw::Protocol::Http3 => &[],
            raw::Protocol::Http2 => &["h2"],
            // Clients that are limited to HTTP/1.0 offer only that.
            raw::Protocol::Http11 => &["http/1.1", "http/1.0"],
        };
        names
    });
    let names: Vec<_> = names.map(|name| name.as_bytes().to_vec()).collect();
    if names.is_empty() {
        reader.report(Finding::error(
            &tls.protocols.span,
            "\"h3\" alone",
            "clients learn of HTTP/3 over HTTP/2 or HTTP/1.1: expected \"h2\" or \"http/1.1\", too",
        ));
        return None;
    }
    Some(names)
}

/// The certificates of a site.
enum SiteCertificates {
    /// From files, or of the local authority.
    Known(Vec<Certificate>, CertificateOrigin),
    /// By ACME, for names that are first seen in a handshake.
    OnDemand(Box<OnDemandPlan>),
    /// By ACME.
    Ordered(Vec<ManagedCertificate>),
}

fn certificates(
    site: &Setting<Site>,
    tls: &Setting<Tls>,
    defaults: &AcmeDefaults,
    reader: &mut ConfigReader<'_>,
) -> Option<SiteCertificates> {
    let mut pairs: Vec<_> = tls
        .certificates
        .0
        .iter()
        .map(|pair| (&pair.cert, &pair.key))
        .collect();
    if reader.has_wrong(&tls.span, &["cert", "key", "certificates"]) {
        return None;
    }
    match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => pairs.insert(0, (cert, key)),
        (Some(one), None) | (None, Some(one)) => {
            reader.report(Finding::error(
                &one.span,
                "`cert` and `key` belong together",
                "the other one is missing",
            ));
            return None;
        }
        (None, None) => {}
    }
    if pairs.is_empty() && tls.certificates.given {
        // The given ones have errors.
        return None;
    }
    if let (Some((cert, _)), Some(acme)) = (pairs.first(), tls.acme.as_ref().filter(|acme| ***acme))
    {
        reader.report(
            Finding::error(
                &acme.span,
                "`acme` beside a certificate",
                "the certificate is ordered by ACME, or it is given",
            )
            .related(&cert.span, "it is given here"),
        );
        return None;
    }
    if let Some(keys) = &tls.acme_on_demand
        && reader.local_certificates.is_none()
    {
        if let Some((cert, _)) = pairs.first() {
            reader.report(
                Finding::error(
                    &keys.span,
                    "`acme_on_demand` beside a certificate",
                    "certificates are ordered on demand, or they are given",
                )
                .related(&cert.span, "it is given here"),
            );
            return None;
        }
        return defaults
            .on_demand(site, tls, keys, reader)
            .map(|plan| SiteCertificates::OnDemand(Box::new(plan)));
    }
    if pairs.is_empty() {
        // With `--tls`, all certificates are local.
        if reader.local_certificates.is_none() {
            return defaults
                .order(site, tls, reader)
                .map(SiteCertificates::Ordered);
        }
        return local_certificate(site, &tls.span, reader).map(|certificate| {
            SiteCertificates::Known(vec![certificate], CertificateOrigin::LocalAuthority)
        });
    }
    let paths = pairs.iter().map(|(cert, _)| cert.value.0.clone()).collect();
    // All certificates are read, so that all errors are reported.
    let read: Vec<_> = pairs
        .into_iter()
        .map(|(cert, key)| certificate(cert, key, reader))
        .collect();
    read.into_iter()
        .collect::<Option<_>>()
        .map(|certificates| SiteCertificates::Known(certificates, CertificateOrigin::Files(paths)))
}

/// The certificate of the local authority for a site that names none.
fn local_certificate(
    site: &Setting<Site>,
    span: &SourceSpan,
    reader: &mut ConfigReader<'_>,
) -> Option<Certificate> {
    let make = reader.local_certificates?;
    let names = site.server_name.0.iter().filter_map(|host| host.tls_name());
    let addresses = site.listen_tls.0.iter().filter_map(|listen| {
        match listen.address(*site.ipv6_only, site.unix_socket_mode.0) {
            ListenAddress::Tcp { address, .. } => Some(address.ip().to_string()),
            ListenAddress::Unix { .. } | ListenAddress::Inherited { .. } => None,
        }
    });
    let hosts: Vec<String> = names.chain(addresses).collect();
    make(&hosts)
        .and_then(|pem| Ok(Certificate::from_pem(&pem, &pem)?))
        .map_err(|error| {
            reader.report(Finding::error(
                span,
                error.to_string(),
                "the local certificate is for this",
            ));
        })
        .ok()
}

/// The certificate and its key; warns about expiry and permissions.
pub(super) fn certificate(
    cert: &Setting<FilePath>,
    key: &Setting<FilePath>,
    reader: &mut ConfigReader<'_>,
) -> Option<Certificate> {
    let chain = file(cert, reader);
    let key_file = file(key, reader);
    let certificate = match Certificate::from_pem(&chain?, &key_file?) {
        Ok(certificate) => certificate,
        Err(error) => {
            use apus_transport::tls::CertificateError::{Chain, Key, KeyMismatch, UnreadableKey};
            let (span, other) = match error {
                KeyMismatch(_) | UnreadableKey(_) | Key(_) => (key, cert),
                _ => (cert, key),
            };
            reader.report(match error {
                Chain(fault) | Key(fault) => pem_error(&span.span, &fault, &span.value.0),
                KeyMismatch(_) => Finding::error(&span.span, error.to_string(), "in this file")
                    .related(&other.span, "this is the certificate")
                    .help(format!(
                        "compare openssl x509 -in {} -noout -pubkey with openssl pkey -in {} -pubout",
                        other.value.0.display(),
                        span.value.0.display()
                    )),
                error => {
                    let text = error.to_string();
                    let text = text.replace("FILE", &span.value.0.display().to_string());
                    Finding::error(&span.span, text, "in this file")
                }
            });
            return None;
        }
    };
    for fault in certificate.chain_faults() {
        reader.report(Finding::warning(&cert.span, fault.what(), "in this file"));
    }
    warn_of_expiry(&certificate, &cert.span, reader);
    warn_of_readers(key, reader);
    Some(certificate)
}

/// A file that is not what is expected, with the command that helps.
pub(super) fn pem_error(span: &SourceSpan, fault: &PemFault, file: &Path) -> Finding {
    let finding = Finding::error(span, fault.what(), "in this file");
    match fault.command(&file.display().to_string()) {
        Some(command) => finding.help(command),
        None => finding,
    }
}

fn warn_of_expiry(certificate: &Certificate, span: &SourceSpan, reader: &mut ConfigReader<'_>) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        });
    let left = certificate.not_after().saturating_sub(now);
    if left < 0 {
        reader.report(Finding::warning(
            span,
            "the certificate has expired",
            format!("{} days ago", -left / DAY),
        ));
    } else if left < EXPIRES_SOON {
        reader.report(Finding::warning(
            span,
            "the certificate expires soon",
            format!("in {} days", left / DAY),
        ));
    }
}

/// Warns about names without a certificate: clients reject the connection, and requests over a
/// connection for another name are misdirected (RFC 9110 section 15.5.20).
fn warn_of_uncovered(
    site: &Setting<Site>,
    certificates: &[Certificate],
    reader: &mut ConfigReader<'_>,
) {
    let covers = |name: &str| {
        let parent = name.split_once('.').map(|(_, parent)| parent);
        certificates
            .iter()
            .flat_map(Certificate::names)
            .any(|covered| match covered.strip_prefix("*.") {
                Some(of) => parent == Some(of),
                None => **covered == *name,
            })
    };
    for host in &site.server_name.0 {
        let Some(name) = host.tls_name() else {
            continue;
        };
        if !covers(&name) {
            reader.report(
                Finding::warning(
                    &host.span,
                    format!("no certificate of the site is for `{name}`"),
                    "clients will refuse the connection, or get status 421",
                )
                .help("add a certificate for the name to [sites.tls]"),
            );
        }
    }
}

/// Warns about a private key that everybody on the machine can read.
pub(super) fn warn_of_readers(key: &Setting<FilePath>, reader: &mut ConfigReader<'_>) {
    let readable = std::fs::metadata(&key.value.0)
        .is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0);
    if readable {
        reader.report(
            Finding::warning(
                &key.span,
                "everybody on this machine can read this file, which is secret",
                "expected a file for its owner alone",
            )
            .help(format!("chmod 600 {}", key.value.0.display())),
        );
    }
}

/// The bytes of the file, a certificate or another credential.
pub(super) fn file(path: &Setting<FilePath>, reader: &mut ConfigReader<'_>) -> Option<Vec<u8>> {
    reader
        .files
        .read_credential(&path.value.0)
        .map_err(|why| {
            reader.report(Finding::error(
                &path.span,
                format!("cannot read {}: {why}", path.value.0.display()),
                "named here",
            ));
        })
        .ok()
}

/// Reports names that SNI cannot match, for a site that requests client certificates: the handshake
/// would be with another site.
fn refuse_patterns(site: &Setting<Site>, tls: &Setting<Tls>, reader: &mut ConfigReader<'_>) {
    if *tls.client_auth == raw::ClientAuth::None {
        return;
    }
    for host in &site.server_name.0 {
        if let SiteHost::Name(_, text) = &host.value
            && host.tls_name().is_none()
        {
            reader.report(
                Finding::error(
                    &host.span,
                    format!("`{text}` in a site that requests client certificates"),
                    "expected names as example.com or *.example.com",
                )
                .related(&tls.client_auth.span, "requested here"),
            );
        }
    }
}

/// Reports a version that the policy does not have.
fn refuse_old_versions(tls: &Setting<Tls>, reader: &mut ConfigReader<'_>) {
    if *tls.policy == TlsPolicyName::Modern
        && tls.min_version.given
        && *tls.min_version == TlsVersion::Tls12
    {
        reader.report(
            Finding::error(
                &tls.min_version.span,
                "TLS 1.2 with the policy \"modern\", which has TLS 1.3 alone",
                "expected \"1.3\", or no `min_version`",
            )
            .related(&tls.policy.span, "the policy"),
        );
    }
}

fn client_auth(tls: &Setting<Tls>, reader: &mut ConfigReader<'_>) -> Option<ClientAuth> {
    let authorities = match (&tls.client_ca, *tls.client_auth) {
        (None, raw::ClientAuth::None) => {
            if let Some(list) = &tls.client_crl {
                reader.report(Finding::error(
                    &list.span,
                    "`client_crl` has no effect",
                    "no certificates are requested from clients",
                ));
                return None;
            }
            return Some(ClientAuth::None);
        }
        (Some(ca), raw::ClientAuth::None) => {
            reader.report(
                Finding::error(
                    &ca.span,
                    "`client_ca` has no effect",
                    "no certificates are requested from clients",
                )
                .help("add client_auth = \"required\" or \"optional\""),
            );
            return None;
        }
        (None, _) => {
            reader.report(Finding::error(
                &tls.client_auth.span,
                "`client_auth` without `client_ca`",
                "nobody is named who may sign client certificates",
            ));
            return None;
        }
        (Some(ca), _) => {
            let pem = file(ca, reader)?;
            ClientAuth::authorities_from_pem(&pem)
                .map_err(|fault| reader.report(pem_error(&ca.span, &fault, &ca.value.0)))
                .ok()?
        }
    };
    let revoked = match &tls.client_crl {
        None => Vec::new(),
        Some(list) => {
            let pem = file(list, reader)?;
            ClientAuth::revoked_from_pem(&pem)
                .map_err(|fault| reader.report(pem_error(&list.span, &fault, &list.value.0)))
                .ok()?
        }
    };
    Some(match *tls.client_auth {
        raw::ClientAuth::None => ClientAuth::None,
        raw::ClientAuth::Optional => ClientAuth::Optional {
            authorities,
            revoked,
        },
        raw::ClientAuth::Required => ClientAuth::Required {
            authorities,
            revoked,
        },
    })
}

/// The names of the site for SNI. Where server names are regular expressions, the names of its
/// certificates are used.
fn names(site: &Setting<Site>, certificates: &[Certificate]) -> Vec<String> {
    let mut names = Vec::new();
    let mut undecided = site.server_name.0.is_empty();
    for host in &site.server_name.0 {
        match host.tls_name() {
            Some(name) => names.push(name),
            None => undecided = true,
        }
    }
    if undecided {
        let of_certificates = certificates.iter().flat_map(Certificate::names);
        names.extend(of_certificates.map(|name| name.to_string()));
    }
    names
}
