//! The layers of a site or a location that decide which clients are served: networks, certificates, passwords, tokens.

use std::fmt::Debug;
use std::sync::Arc;

use apus_conditions::NetworkSet;
use apus_handler::middleware::Layer;
use apus_http::Network;
use apus_layers::auth::{BasicAuth, Key, SignedUrls, Users};
use apus_layers::{AnyOf, NetworkAccess, Referers, RequireClientCertificate};

use super::admission_check::AdmissionCheck;
use super::conditions::Conditions;
use super::forward_auth;
use super::jwt;
use super::switched::switched;
use super::tls;
use super::upstream::SiteUpstreams;
use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::raw::LocationKeys;
use crate::raw::layers::{self as keys, CertificateNeed, Networks, RefererSource, Satisfy};
use crate::source::{Setting, SourceSpan};
use crate::string_type::NetworkEntry;
use crate::value::FilePath;

/// The keys of a place, and what its site says about clients.
#[derive(Clone, Copy)]
pub(super) struct AccessKeys<'a> {
    /// The keys of the place itself.
    pub(super) own: &'a LocationKeys,
    /// Whether the site requests certificates of clients.
    pub(super) requests_certificates: bool,
    /// The names that conditions may use.
    pub(super) conditions: &'a Conditions,
    /// The groups of origins that the site can send requests to.
    pub(super) groups: &'a SiteUpstreams<'a>,
}

/// The layers that decide which clients are served.
#[derive(Clone, Debug, Default)]
pub(super) struct AccessLayers {
    deny: Option<NetworkLayer<Layer>>,
    referers: Option<Layer>,
    signed_url: Option<Layer>,
    allow: Option<NetworkLayer<AdmissionCheck>>,
    certificate: Option<AdmissionCheck>,
    basic_auth: Option<AdmissionCheck>,
    jwt: Option<AdmissionCheck>,
    forward_auth: Option<AdmissionCheck>,
    /// The layer of all checks of which one is enough.
    any: Option<Layer>,
    is_any: bool,
}

/// Networks, and the layer of them.
#[derive(Clone, Debug)]
struct NetworkLayer<L> {
    networks: Arc<[Network]>,
    /// Whether there are more networks, in lists.
    has_lists: bool,
    layer: L,
}

/// The networks of a key: those of the site with their layer, or others for a layer.
enum ResolvedNetworks<L> {
    Site(NetworkLayer<L>),
    Own {
        networks: Arc<[Network]>,
        lists: Vec<String>,
        set: Arc<NetworkSet>,
    },
}

impl<L> ResolvedNetworks<L> {
    /// The layer of them.
    fn or_make(self, make: impl FnOnce(Arc<NetworkSet>, &dyn Debug) -> L) -> NetworkLayer<L> {
        match self {
            Self::Site(layer) => layer,
            Self::Own {
                networks,
                lists,
                set,
            } => NetworkLayer {
                layer: make(set, &(&networks, &lists)),
                has_lists: !lists.is_empty(),
                networks,
            },
        }
    }
}

impl AccessLayers {
    /// The layers by the keys of a place, and the site's layers for keys that the place does not have.
    pub(super) fn resolve(
        keys: AccessKeys<'_>,
        site: &Self,
        reader: &mut ConfigReader<'_>,
    ) -> Self {
        let own = keys.own;
        let mut layers = Self {
            deny: networks(keys, own.deny.as_ref(), &site.deny, reader).map(|denied| {
                denied.or_make(|networks, settings| {
                    Layer::named("deny", settings, NetworkAccess::deny_set(networks))
                })
            }),
            referers: switched(
                own.referers.as_ref(),
                &site.referers,
                reader,
                |keys, _, _| Some(referers(keys)),
            ),
            signed_url: switched(
                own.signed_url.as_ref(),
                &site.signed_url,
                reader,
                |keys, _, reader| signed_url(keys, reader),
            ),
            allow: networks(keys, own.allow.as_ref(), &site.allow, reader).map(|allowed| {
                allowed.or_make(|networks, settings| {
                    AdmissionCheck::new(settings, NetworkAccess::allow_set(networks))
                })
            }),
            certificate: certificate(keys, site, reader),
            basic_auth: switched(
                own.basic_auth.as_ref(),
                &site.basic_auth,
                reader,
                basic_auth,
            ),
            jwt: switched(own.jwt.as_ref(), &site.jwt, reader, |own, span, reader| {
                jwt::check((own, span), keys.groups, reader)
            }),
            forward_auth: switched(
                own.forward_auth.as_ref(),
                &site.forward_auth,
                reader,
                |own, _, reader| forward_auth::check(own, keys.groups, reader),
            ),
            any: site.any.clone(),
            is_any: if own.satisfy.given {
                *own.satisfy == Satisfy::Any
            } else {
                site.is_any
            },
        };
        layers.report_networks_without_effect(own, reader);
        if Self::changes_admission(own) {
            layers.combine(own, reader);
        }
        layers
    }

    /// Whether a place has a key of these layers.
    pub(super) fn has_keys(own: &LocationKeys) -> bool {
        own.deny.is_some()
            || own.referers.is_some()
            || own.signed_url.is_some()
            || Self::changes_admission(own)
    }

    /// Whether a place has a key that changes which checks can admit a client.
    fn changes_admission(own: &LocationKeys) -> bool {
        own.allow.is_some()
            || own.client_certificate.given
            || own.basic_auth.is_some()
            || own.jwt.is_some()
            || own.forward_auth.is_some()
            || own.satisfy.given
    }

    /// Makes the layer for clients that one check admits, if one is enough.
    fn combine(&mut self, own: &LocationKeys, reader: &mut ConfigReader<'_>) {
        self.any = None;
        if !self.is_any {
            return;
        }
        let checks: Vec<_> = self.admission().collect();
        if let Some(span) = checks
            .iter()
            .find_map(|check| check.admits_everybody.clone())
        {
            let place = if own.satisfy.given {
                &own.satisfy.span
            } else {
                &span
            };
            let message = "everybody is served: tokens are optional, and one check is enough";
            reader.report(
                Finding::error(
                    place,
                    message,
                    "expected \"all\", or a token that is required",
                )
                .related(&span, "clients without a token are admitted"),
            );
        }
        if checks.is_empty() {
            return;
        }
        let settings: Vec<_> = checks.iter().map(|check| &check.settings).collect();
        let any = AnyOf::of(checks.iter().map(|check| check.check.clone()));
        self.any = Some(Layer::named("satisfy any", &settings, any));
    }

    /// The checks that can admit a client.
    fn admission(&self) -> impl Iterator<Item = &AdmissionCheck> {
        let allow = self.allow.as_ref().map(|allow| &allow.layer);
        [
            allow,
            self.certificate.as_ref(),
            self.basic_auth.as_ref(),
            self.jwt.as_ref(),
            self.forward_auth.as_ref(),
        ]
        .into_iter()
        .flatten()
    }

    /// The layers, the outermost first.
    pub(super) fn into_iter(self) -> impl Iterator<Item = Layer> {
        let admission: Vec<_> = if self.is_any {
            self.any.iter().cloned().collect()
        } else {
            self.admission().map(|check| check.layer.clone()).collect()
        };
        let deny = self.deny.map(|deny| deny.layer);
        [deny, self.referers, self.signed_url]
            .into_iter()
            .flatten()
            .chain(admission)
    }

    /// Reports where `allow` and `deny` of a place say what one of them says alone.
    fn report_networks_without_effect(&self, own: &LocationKeys, reader: &mut ConfigReader<'_>) {
        let (Some(allow), Some(deny)) = (&self.allow, &self.deny) else {
            return;
        };
        let Some(place) = own.deny.as_ref().or(own.allow.as_ref()) else {
            return;
        };
        let covers = |one: &Network, other: &Network| match (one, other) {
            (
                Network::Ip { bits, .. },
                Network::Ip {
                    address,
                    bits: inner,
                },
            ) => bits <= inner && one.contains_ip(*address),
            (one, other) => one == other,
        };
        if allow.has_lists || deny.has_lists {
            return;
        }
        // Lists of thousands of networks are hardly written by hand.
        if allow.networks.len().saturating_mul(deny.networks.len()) > 100_000 {
            return;
        }
        let is_denied = |allowed| deny.networks.iter().any(|denied| covers(denied, allowed));
        let is_allowed = |denied| allow.networks.iter().any(|allowed| covers(allowed, denied));
        if allow.networks.iter().all(is_denied) {
            let message = "`deny` has all that `allow` has, so that no address is admitted";
            reader.report(
                Finding::error(
                    &place.span,
                    message,
                    "expected networks within those of `allow`",
                )
                .help("leave `deny` out: with `allow`, all others are denied"),
            );
        } else if !deny.networks.iter().any(is_allowed)
            && !allow.networks.iter().any(is_denied)
            && !self.is_any
        {
            let message = "`deny` has no effect: with `allow`, all others are denied already";
            reader.report(Finding::warning(
                &place.span,
                message,
                "expected networks within those of `allow`",
            ));
        }
    }
}

/// The networks that a key gives, turns off, or leaves to the site.
fn networks<L: Clone>(
    keys: AccessKeys<'_>,
    own: Option<&Setting<Networks>>,
    site: &Option<NetworkLayer<L>>,
    reader: &mut ConfigReader<'_>,
) -> Option<ResolvedNetworks<L>> {
    let entries = match own.map(|own| &own.value) {
        None => return site.clone().map(ResolvedNetworks::Site),
        Some(Networks::Off) => return None,
        Some(Networks::Of(entries)) => entries,
    };
    let (mut networks, mut lists, mut sets) = (Vec::new(), Vec::new(), Vec::new());
    for entry in &entries.0 {
        match &entry.value {
            NetworkEntry::Network(network) => networks.push(*network),
            NetworkEntry::List(name) => {
                sets.extend(keys.conditions.networks(name, &entry.span, reader));
                lists.push(name.clone());
            }
        }
    }
    let set = match &*sets {
        // A list alone is shared.
        [set] if networks.is_empty() => set.clone(),
        _ => {
            let written = NetworkSet::new(networks.iter().copied());
            let sets = sets.iter().map(|set| &**set);
            Arc::new(NetworkSet::union(sets.chain([&written])))
        }
    };
    Some(ResolvedNetworks::Own {
        networks: networks.into(),
        lists,
        set,
    })
}

fn certificate(
    keys: AccessKeys<'_>,
    site: &AccessLayers,
    reader: &mut ConfigReader<'_>,
) -> Option<AdmissionCheck> {
    let need = &keys.own.client_certificate;
    if !need.given {
        return site.certificate.clone();
    }
    if **need == CertificateNeed::Optional {
        return None;
    }
    if !keys.requests_certificates {
        let message = "the site requests no certificates of clients, so that none has one";
        reader.report(
            Finding::error(
                &need.span,
                message,
                "expected `client_auth` in the site's `tls`",
            )
            .help("add tls.client_auth = \"optional\" and tls.client_ca to the site"),
        );
        return None;
    }
    Some(AdmissionCheck::new(
        &CertificateNeed::Required,
        RequireClientCertificate::new(),
    ))
}

fn referers(keys: &keys::RefererRules) -> Layer {
    let referers = keys.allow.0.iter();
    let referers = referers.fold(Referers::new(), |referers, source| match &source.value {
        RefererSource::None => referers.none(),
        RefererSource::Blocked => referers.blocked(),
        RefererSource::ServerNames => referers.same_host(),
        RefererSource::Host(host) => referers.host(host),
    });
    Layer::named("referers", keys, referers)
}

fn signed_url(keys: &keys::SignedUrl, reader: &mut ConfigReader<'_>) -> Option<Layer> {
    let secret = tls::file(&keys.key_file, reader)?;
    match Key::new(secret.trim_ascii()) {
        Ok(key) => {
            tls::warn_of_readers(&keys.key_file, reader);
            Some(Layer::named("signed_url", keys, SignedUrls::new(&key)))
        }
        Err(error) => {
            let message = error.to_string();
            reader.report(Finding::error(&keys.key_file.span, message, "in this file"));
            None
        }
    }
}

/// Warns of hashes from which a reader of the file could find the passwords soon.
fn warn_of_weak_hashes(users: &Users, file: &Setting<FilePath>, reader: &mut ConfigReader<'_>) {
    let count = users.weak();
    if count > 0 {
        let message = match count {
            1 => {
                "a user has a hash of MD5 or SHA-1, from which passwords are found fast".to_owned()
            }
            _ => format!(
                "{count} users have hashes of MD5 or SHA-1, from which passwords are found fast"
            ),
        };
        reader.report(
            Finding::warning(&file.span, message, "in this file")
                .help("make new ones by `htpasswd -B`"),
        );
    }
}

/// The invalid lines of a file of users that are reported one by one.
const MAX_INVALID_USERS: usize = 10;

fn basic_auth(
    keys: &keys::BasicAuth,
    _: &SourceSpan,
    reader: &mut ConfigReader<'_>,
) -> Option<AdmissionCheck> {
    let bytes = tls::file(&keys.users_file, reader)?;
    let invalid = match std::str::from_utf8(&bytes) {
        Ok(text) => match Users::from_htpasswd(text) {
            Ok(users) if users.is_empty() => vec!["the file has no users".to_owned()],
            Ok(users) => {
                tls::warn_of_readers(&keys.users_file, reader);
                warn_of_weak_hashes(&users, &keys.users_file, reader);
                let failures = u32::try_from(keys.failures_per_minute.0).unwrap_or(u32::MAX);
                let auth = BasicAuth::stored(&keys.realm.0, users).failures_per_minute(failures);
                return Some(AdmissionCheck::new(keys, auth));
            }
            Err(invalid) => invalid.iter().map(ToString::to_string).collect(),
        },
        Err(_) => vec!["the file is not UTF-8".to_owned()],
    };
    for error in invalid.iter().take(MAX_INVALID_USERS) {
        reader.report(Finding::error(&keys.users_file.span, error, "in this file"));
    }
    if let Some(more @ 1..) = invalid.len().checked_sub(MAX_INVALID_USERS) {
        let message = format!("{more} more lines are no users");
        reader.report(Finding::error(
            &keys.users_file.span,
            message,
            "in this file",
        ));
    }
    None
}
