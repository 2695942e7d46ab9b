//! The keys of ACME: which certificates are ordered, and how.

use std::net::IpAddr;
use std::path::PathBuf;

use apus_acme::{
    AcmeDnsAccount, AcmeProvider, AcmeSettings, CertificateKeyType, ChallengeKind, DnsKeyAlgorithm,
    DnsPublisher, DnsUpdateKey, DnsUpdateServer, ExternalAccount, ManagedCertificate, is_public,
};
use apus_patterns::uncertifiable;

use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::plan::OnDemandPlan;
use crate::raw::{
    self, AcmeKeyType, CertificateScope, Challenge, DnsProvider, OnDemand, Site, Tls,
    TlsPolicyName, TsigAlgorithm,
};
use crate::source::{Setting, SourceSpan};
use crate::string_type::SiteHost;
use crate::string_type::acme::ProviderText;
use crate::value::{OneOrMore, Text};

const AGREE: &str = "add acme_email = \"you@example.com\" to [global], which means that you agree to the terms of the \
                     certificate authority, by default Let's Encrypt";

/// A name for which no authority issues a certificate.
fn uncertifiable_name(host: &Setting<SiteHost>, name: &str) -> Option<Finding> {
    let address = name.trim_start_matches('[').trim_end_matches(']');
    if address.parse::<IpAddr>().is_ok() {
        return None;
    }
    let why = uncertifiable(name)?;
    Some(
        Finding::error(
            &host.span,
            format!("no certificate authority issues a certificate for `{name}`"),
            why,
        )
        .help("choose another name, or give the certificate by cert and key"),
    )
}

/// The keys of `[global]` for certificates.
pub(super) struct AcmeDefaults {
    settings: AcmeSettings,
    agree: bool,
    key_types: Vec<CertificateKeyType>,
    scope: CertificateScope,
}

impl AcmeDefaults {
    pub(super) fn new(
        raw: &raw::Global,
        place: Option<&SourceSpan>,
        reader: &mut ConfigReader<'_>,
    ) -> Self {
        let is_account_wrong =
            place.is_some_and(|place| reader.has_wrong(place, &["acme_eab_id", "acme_eab_key"]));
        let external_account = match (&raw.acme_eab_id, &raw.acme_eab_key) {
            (Some(id), Some(key)) => Some(ExternalAccount {
                id: id.0.clone(),
                key: key.0.clone(),
            }),
            (None, None) => None,
            _ if is_account_wrong => None,
            (id, key) => {
                let span = id.as_ref().map(|id| &id.span);
                if let Some(span) = span.or(key.as_ref().map(|key| &key.span)) {
                    reader.report(Finding::error(
                        span,
                        "`acme_eab_id` and `acme_eab_key` belong together",
                        "the other one is missing",
                    ));
                }
                None
            }
        };
        let dns = dns_publisher(raw, reader);
        if raw.acme_dns_hook.is_none() && raw.acme_dns.is_none() {
            refuse_dns(&raw.acme_challenge, reader);
        }
        let path = |path: &Option<Setting<crate::value::FilePath>>| -> Option<PathBuf> {
            path.as_ref().map(|path| path.value.0.clone())
        };
        let text = |text: &Option<Setting<Text>>| text.as_ref().map(|text| text.0.clone());
        Self {
            agree: *raw.acme_agree,
            key_types: key_types(&raw.acme_key_type),
            scope: *raw.acme_certificate_per,
            settings: AcmeSettings {
                email: raw.acme_email.as_ref().map(|email| email.0.clone()),
                providers: providers(&raw.acme_provider),
                staging: raw.acme_staging_provider.as_ref().map(|one| one.0.clone()),
                provider_root: path(&raw.acme_provider_root),
                external_account,
                challenges: challenges(&raw.acme_challenge),
                dns,
                resolver: raw.acme_resolver.as_ref().map(|server| server.0),
                skip_dns_check: !*raw.acme_check_dns,
                profile: raw.acme_profile.as_ref().map(|profile| profile.0.clone()),
                preferred_chain: text(&raw.acme_preferred_chain),
                key_type: CertificateKeyType::default(),
                reuse_key: *raw.acme_reuse_key,
            },
        }
    }

    /// Certificates for names of a site that are first seen in a handshake; `None` if errors were reported. TLS is added to
    /// them later.
    pub(super) fn on_demand(
        &self,
        site: &Setting<Site>,
        tls: &Setting<Tls>,
        keys: &Setting<OnDemand>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<OnDemandPlan> {
        let mut is_right = true;
        let mut refuse = |finding: Finding| {
            reader.report(finding);
            is_right = false;
        };
        if keys.names.0.is_empty() && keys.ask.is_none() {
            refuse(Finding::error(
                &keys.span,
                "certificates on demand without a permission",
                "expected `ask` or `names`: otherwise anybody could have certificates ordered",
            ));
        }
        for host in &site.server_name.0 {
            let fits = match &host.value {
                SiteHost::Other => true,
                SiteHost::Name(..) => host.tls_name().is_some(),
            };
            if let Some(finding) = host
                .tls_name()
                .and_then(|name| uncertifiable_name(host, &name))
            {
                refuse(finding);
            }
            if !fits {
                refuse(Finding::error(
                    &host.span,
                    "a pattern in a site with certificates on demand",
                    "expected names as *.example.com or shop.example.com, or none for all names",
                ));
            }
        }
        let mut allowed = Vec::new();
        for host in &keys.names.0 {
            match host.tls_name() {
                Some(name) => match uncertifiable_name(host, &name) {
                    Some(finding) => refuse(finding),
                    None => allowed.push(name),
                },
                None => refuse(Finding::error(
                    &host.span,
                    "a name that may get a certificate",
                    "expected names as shop.example.com or *.example.com",
                )),
            }
        }
        let settings = self.settings_of(tls);
        if settings.email.is_none() && !self.agree && !*tls.acme_agree {
            refuse(
                Finding::error(
                    &keys.span,
                    "you have not agreed to the terms of a certificate authority",
                    "for certificates on demand",
                )
                .help(AGREE),
            );
        }
        is_right.then(|| OnDemandPlan {
            settings,
            allowed,
            ask: keys.ask.as_ref().map(|ask| ask.0.clone()),
            orders_per_hour: u32::try_from(keys.orders_per_hour.0).unwrap_or(u32::MAX),
        })
    }

    /// The certificates of a site that names none; `None` if errors were reported.
    pub(super) fn order(
        &self,
        site: &Setting<Site>,
        tls: &Setting<Tls>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<Vec<ManagedCertificate>> {
        let is_wanted = match &tls.acme {
            Some(acme) if !**acme => {
                reader.report(Self::without_certificate(tls));
                return None;
            }
            acme => acme.is_some(),
        };
        let names = self.names(site, tls, is_wanted, reader)?;
        if self.settings.dns.is_none() && !refuse_dns(&tls.acme_challenge, reader) {
            return None;
        }
        let settings = self.settings_of(tls);
        if settings.email.is_none() && !self.agree && !*tls.acme_agree {
            let finding = if is_wanted {
                Finding::error(
                    &tls.span,
                    "you have not agreed to the terms of a certificate authority",
                    "for the certificate of this site",
                )
            } else {
                Finding::error(
                    &tls.span,
                    "a TLS listener without a certificate",
                    "the names are on the public Internet: it can be ordered by ACME",
                )
            };
            reader.report(finding.help(AGREE));
            return None;
        }
        Some(self.certificates(names, &settings, tls))
    }

    fn without_certificate(tls: &Setting<Tls>) -> Finding {
        Finding::error(
            &tls.span,
            "a TLS listener without a certificate",
            "expected `cert` and `key`, or `certificates`, in [sites.tls]",
        )
        .help("to try things out, `--tls` makes a certificate")
    }

    /// The names of the certificate.
    fn names(
        &self,
        site: &Setting<Site>,
        tls: &Setting<Tls>,
        is_wanted: bool,
        reader: &mut ConfigReader<'_>,
    ) -> Option<Vec<String>> {
        let mut names = Vec::new();
        let mut is_complete = true;
        let mut refuse = |finding: Finding| {
            reader.report(finding);
            is_complete = false;
        };
        for host in &site.server_name.0 {
            let Some(name) = host.tls_name() else {
                if let (true, SiteHost::Name(_, text)) = (is_wanted, &host.value) {
                    refuse(Finding::error(
                        &host.span,
                        format!("`{text}` in a site whose certificate is ordered by ACME"),
                        "expected names as example.com or *.example.com",
                    ));
                }
                continue;
            };
            if !is_wanted && !is_public(&name) {
                // It gets its error below.
                names.clear();
                break;
            }
            if let Some(finding) = uncertifiable_name(host, &name) {
                refuse(finding);
            }
            if name.starts_with("*.") && self.settings.dns.is_none() {
                refuse(
                    Finding::error(
                        &host.span,
                        format!("a certificate for `{name}` needs the challenge dns-01"),
                        "a wildcard",
                    )
                    .help("add acme_dns or acme_dns_hook to [global], or give the certificate by cert and key"),
                );
            }
            names.push(name);
        }
        if !is_complete {
            return None;
        }
        if names.is_empty() {
            let finding = if is_wanted {
                Finding::error(
                    &tls.span,
                    "a certificate is ordered for names, and the site has none",
                    "expected `server_name` in the site",
                )
            } else {
                Self::without_certificate(tls)
            };
            reader.report(finding);
            return None;
        }
        Some(names)
    }

    /// The settings of a site, which override the settings of all sites.
    fn settings_of(&self, tls: &Setting<Tls>) -> AcmeSettings {
        let of_all = &self.settings;
        let email = tls.acme_email.as_ref().map(|email| email.0.clone());
        let profile = tls.acme_profile.as_ref().map(|profile| profile.0.clone());
        let chain = tls.acme_preferred_chain.as_ref().map(|name| name.0.clone());
        AcmeSettings {
            preferred_chain: chain.or_else(|| of_all.preferred_chain.clone()),
            email: email.or_else(|| of_all.email.clone()),
            providers: if tls.acme_provider.given {
                providers(&tls.acme_provider)
            } else {
                of_all.providers.clone()
            },
            challenges: if tls.acme_challenge.given {
                challenges(&tls.acme_challenge)
            } else {
                of_all.challenges.clone()
            },
            skip_dns_check: if tls.acme_check_dns.given {
                !*tls.acme_check_dns
            } else {
                of_all.skip_dns_check
            },
            profile: profile.or_else(|| of_all.profile.clone()),
            key_type: self.key_types_of(tls).first().copied().unwrap_or_default(),
            reuse_key: if tls.acme_reuse_key.given {
                *tls.acme_reuse_key
            } else {
                of_all.reuse_key
            },
            ..of_all.clone()
        }
    }

    /// The kinds of keys of a site, the preferred one first. By default, there is one.
    fn key_types_of(&self, tls: &Setting<Tls>) -> Vec<CertificateKeyType> {
        if tls.acme_key_type.given {
            key_types(&tls.acme_key_type)
        } else if self.key_types.is_empty() && *tls.policy == TlsPolicyName::Legacy {
            // Clients that are so old may know RSA alone.
            vec![CertificateKeyType::P256, CertificateKeyType::Rsa2048]
        } else {
            self.key_types.clone()
        }
    }

    /// Whether each name of a site has its own certificate.
    pub(super) fn is_per_name(&self, tls: &Setting<Tls>) -> bool {
        let scope = if tls.acme_certificate_per.given {
            *tls.acme_certificate_per
        } else {
            self.scope
        };
        scope == CertificateScope::Name
    }

    /// The certificates for names: one for all or one for each, with each kind of key.
    fn certificates(
        &self,
        names: Vec<String>,
        settings: &AcmeSettings,
        tls: &Setting<Tls>,
    ) -> Vec<ManagedCertificate> {
        let groups: Vec<Vec<String>> = if self.is_per_name(tls) {
            names.into_iter().map(|name| vec![name]).collect()
        } else {
            vec![names]
        };
        let mut key_types = self.key_types_of(tls);
        if key_types.is_empty() {
            key_types.push(settings.key_type);
        }
        let mut certificates = Vec::new();
        for names in groups {
            for (number, key_type) in key_types.iter().enumerate() {
                certificates.push(ManagedCertificate {
                    names: names.clone(),
                    settings: AcmeSettings {
                        key_type: *key_type,
                        ..settings.clone()
                    },
                    is_additional: number > 0,
                });
            }
        }
        certificates
    }
}

/// What publishes TXT records.
fn dns_publisher(raw: &raw::Global, reader: &mut ConfigReader<'_>) -> Option<DnsPublisher> {
    let keys = match (&raw.acme_dns, &raw.acme_dns_hook) {
        (Some(keys), Some(hook)) => {
            reader.report(
                Finding::error(
                    &keys.span,
                    "`acme_dns` beside `acme_dns_hook`",
                    "one of them publishes the records",
                )
                .related(&hook.span, "the other one"),
            );
            return None;
        }
        (None, None) => return None,
        (None, Some(hook)) => return Some(DnsPublisher::Hook(hook.value.0.clone())),
        (Some(keys), None) => keys,
    };
    let secrets = [
        "key_name",
        "key",
        "server",
        "url",
        "user",
        "password",
        "subdomain",
        "token",
    ];
    if reader.has_wrong(&keys.span, &secrets) {
        // It has its error.
        return None;
    }
    let mut missing = |name: &str| {
        reader.report(Finding::error(
            &keys.span,
            format!("`{name}` is missing"),
            format!("for \"{}\"", provider_name(*keys.provider)),
        ));
    };
    match *keys.provider {
        DnsProvider::Rfc2136 => {
            let key = match (&keys.key_name, &keys.key) {
                (Some(name), Some(secret)) => Some(DnsUpdateKey {
                    name: name.0.clone(),
                    secret: secret.0.clone(),
                    algorithm: match *keys.key_algorithm {
                        TsigAlgorithm::HmacSha256 => DnsKeyAlgorithm::HmacSha256,
                        TsigAlgorithm::HmacSha384 => DnsKeyAlgorithm::HmacSha384,
                        TsigAlgorithm::HmacSha512 => DnsKeyAlgorithm::HmacSha512,
                    },
                }),
                (None, None) => None,
                (None, Some(_)) => {
                    missing("key_name");
                    return None;
                }
                (Some(_), None) => {
                    missing("key");
                    return None;
                }
            };
            let Some(server) = &keys.server else {
                missing("server");
                return None;
            };
            Some(DnsPublisher::Update(DnsUpdateServer {
                address: server.0,
                key,
            }))
        }
        DnsProvider::AcmeDns => {
            let (Some(url), Some(user), Some(password), Some(subdomain)) =
                (&keys.url, &keys.user, &keys.password, &keys.subdomain)
            else {
                missing("url`, `user`, `password` or `subdomain");
                return None;
            };
            Some(DnsPublisher::AcmeDns(AcmeDnsAccount {
                url: url.0.clone(),
                user: user.0.clone(),
                password: password.0.clone(),
                subdomain: subdomain.0.clone(),
            }))
        }
        DnsProvider::Webhook => {
            let Some(url) = &keys.url else {
                missing("url");
                return None;
            };
            Some(DnsPublisher::Webhook {
                url: url.0.clone(),
                token: keys.token.as_ref().map(|token| token.0.clone()),
            })
        }
    }
}

fn provider_name(provider: DnsProvider) -> &'static str {
    match provider {
        DnsProvider::Rfc2136 => "rfc2136",
        DnsProvider::AcmeDns => "acme-dns",
        DnsProvider::Webhook => "webhook",
    }
}

/// Reports the challenge `dns-01` without a hook; returns whether there is none.
fn refuse_dns(raw: &OneOrMore<Challenge>, reader: &mut ConfigReader<'_>) -> bool {
    let found = raw.0.iter().find(|one| one.value == Challenge::Dns);
    if let Some(one) = found {
        reader.report(Finding::error(
            &one.span,
            "`dns-01` without `acme_dns` or `acme_dns_hook`",
            "nothing is named that publishes TXT records",
        ));
    }
    found.is_none()
}

fn providers(raw: &OneOrMore<ProviderText>) -> Vec<AcmeProvider> {
    raw.0
        .iter()
        .map(|provider| provider.value.0.clone())
        .collect()
}

fn challenges(raw: &OneOrMore<Challenge>) -> Vec<ChallengeKind> {
    raw.0
        .iter()
        .map(|challenge| match challenge.value {
            Challenge::Http => ChallengeKind::Http,
            Challenge::TlsAlpn => ChallengeKind::TlsAlpn,
            Challenge::Dns => ChallengeKind::Dns,
        })
        .collect()
}

fn key_types(raw: &OneOrMore<AcmeKeyType>) -> Vec<CertificateKeyType> {
    let mut types = Vec::new();
    for one in &raw.0 {
        let one = key_type(one.value);
        if !types.contains(&one) {
            types.push(one);
        }
    }
    types
}

fn key_type(raw: AcmeKeyType) -> CertificateKeyType {
    match raw {
        AcmeKeyType::P256 => CertificateKeyType::P256,
        AcmeKeyType::P384 => CertificateKeyType::P384,
        AcmeKeyType::Rsa2048 => CertificateKeyType::Rsa2048,
    }
}
