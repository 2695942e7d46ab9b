//! The keys of the reverse proxy: its origins, and changes of requests and responses.

use std::path::PathBuf;

use apus_net::SystemAccount;
use apus_proxy::{
    CookieRules, Forwarding, HoldSettings, HostHeader, MirrorSettings, PathChange, PathForm,
    ProxySettings, RedirectRule, Substitution, Substitutions,
};
use apus_sites::{AccelSettings, LocationSettings};
use rustix::fs::Access;

use super::cache;
use super::conditions::Conditions;
use super::upstream::{SiteUpstreams, same_site};
use super::upstream_choices::RuleChoices;
use crate::diagnostics::Finding;
use crate::files::is_no_folder;
use crate::keys::{ConfigReader, ConfigTable};
use crate::plan::{ProxyChoice, ProxyPlan};
use crate::raw::cache::Cache;
use crate::raw::proxy as keys;
use crate::source::Setting;
use crate::string_type::LocationPath;
use crate::string_type::origin::{ProxyHost, UpstreamName, UpstreamTarget};
use crate::value::{FilePath, Switch};

/// The default folder for bodies that do not fit into memory.
const SPOOL: &str = "/var/tmp";

/// Resolves the reverse proxy of a site or of a location.
pub(super) struct ProxyResolver<'a> {
    pub(super) groups: &'a SiteUpstreams<'a>,
    /// What rules may choose instead.
    pub(super) choices: &'a RuleChoices<'a>,
    pub(super) conditions: &'a Conditions,
    /// The origins.
    pub(super) upstream: &'a Setting<UpstreamName>,
    /// The location that names them; `None` for the site.
    pub(super) pattern: Option<&'a Setting<LocationPath>>,
    pub(super) own: Option<&'a Setting<keys::Proxy>>,
    pub(super) site_keys: Option<&'a Setting<keys::Proxy>>,
    pub(super) cache: Option<&'a Setting<Switch<Cache>>>,
    pub(super) cache_of_site: Option<&'a Setting<Switch<Cache>>>,
}

impl ProxyResolver<'_> {
    /// The handler with its settings. All parts are checked before the first error ends it.
    pub(super) fn handler(
        &self,
        reader: &mut ConfigReader<'_>,
    ) -> Option<(ProxyPlan, LocationSettings)> {
        let found = self.groups.of_upstream(self.upstream, reader);
        let path = self.path(reader);
        let cache = cache::settings(self.cache, self.cache_of_site, self.conditions, reader);
        let keys = self.keys(reader)?;
        let host = host_field(&keys, self.upstream, reader);
        let hold_request = hold_request(&keys.hold_request, reader);
        let hold_response = hold_response(&keys.hold_response, reader);
        let substitutions = substitutions(&keys, reader);
        let mirror = self.mirror(&keys, reader);
        let (found, host) = (found?, host?);
        let settings = service_settings(&keys.intercept_errors, &keys.accel, reader);
        let mut cache = cache?;
        if let Some(cache) = &mut cache {
            cache.rules.key.rule_choice = self.choices.are_in_keys;
        }
        let proxy_settings = ProxySettings {
            site: self.groups.site_name().into(),
            host,
            scheme: found.scheme(),
            path: path?,
            path_form: path_form(&keys.path),
            forwarding: Forwarding {
                x_forwarded: *keys.x_forwarded,
                forwarded: *keys.forwarded,
                via: *keys.via,
                underscores: *keys.underscores,
                upgrades: if keys.upgrade.given {
                    (keys.upgrade.0.iter())
                        .map(|name| name.0.as_str().into())
                        .collect()
                } else {
                    Forwarding::default().upgrades
                },
            },
            hidden: keys
                .hide
                .0
                .iter()
                .map(|name| name.0.to_ascii_lowercase().into())
                .collect(),
            redirects: keys
                .redirects
                .0
                .iter()
                .map(|(from, to)| RedirectRule {
                    from: from.0.as_str().into(),
                    to: to.0.as_str().into(),
                })
                .collect(),
            cookies: keys.cookies.as_deref().map(cookies).unwrap_or_default(),
            substitutions: substitutions?,
            hold_request: hold_request?,
            hold_response: hold_response?,
            tunnel_timeout: keys.tunnel_timeout.0,
            mirror: mirror?,
        };
        let mut choices = Vec::new();
        for choice in self.choices.groups() {
            choices.push(ProxyChoice {
                settings: ProxySettings {
                    host: host_field(&keys, choice.upstream, reader)?,
                    scheme: choice.group.scheme(),
                    ..proxy_settings.clone()
                },
                upstream: choice.group.name.clone(),
            });
        }
        let proxy = ProxyPlan {
            cache,
            settings: proxy_settings,
            choices,
            upstream: found.name,
        };
        Some((proxy, settings))
    }

    /// The mirror of requests. The outer `None` is for errors.
    fn mirror(
        &self,
        keys: &keys::Proxy,
        reader: &mut ConfigReader<'_>,
    ) -> Option<Option<MirrorSettings>> {
        let keys::Mirror::To(mirror) = &keys.mirror.value else {
            return Some(None);
        };
        if mirror.upstream.path.is_some() {
            reader.report(Finding::error(
                &mirror.upstream.span,
                "a path in the `upstream` of `mirror`",
                "copies have the path of the request",
            ));
            return None;
        }
        let found = self.groups.of_upstream(&mirror.upstream, reader)?;
        Some(Some(MirrorSettings {
            scheme: found.scheme(),
            group: found.name.into(),
            percent: u32::try_from(mirror.percent.0).unwrap_or(100),
            unsafe_methods: *mirror.unsafe_methods,
            max_requests: usize::try_from(mirror.max_requests.0).unwrap_or(usize::MAX),
            memory: usize::try_from(mirror.memory.0).unwrap_or(usize::MAX),
            timeout: mirror.timeout.0,
        }))
    }

    /// The change of the path. The outer `None` is for errors.
    fn path(&self, reader: &mut ConfigReader<'_>) -> Option<Option<PathChange>> {
        let Some(put) = &self.upstream.path else {
            return Some(None);
        };
        let pattern = self
            .pattern
            .map(|pattern| (pattern, pattern.value.0.to_string()));
        let strip = match &pattern {
            None => "/",
            Some((pattern, text)) if text.starts_with('~') => {
                reader.report(
                    Finding::error(
                        &self.upstream.span,
                        "a path in `upstream`, in a location with a regular expression",
                        "it stands for the location's path, and there is none",
                    )
                    .related(&pattern.span, "the expression")
                    .help("use `rewrite`, or a prefix as path"),
                );
                return None;
            }
            Some((_, text)) => text.find('/').and_then(|at| text.get(at..)).unwrap_or("/"),
        };
        if let Some((pattern, text)) = &pattern
            && !text.starts_with('=')
            && !strip.ends_with('/')
            && strip != put.as_str()
        {
            let label = if put.ends_with('/') {
                format!("`{strip}x` is in the location, but not below it, and gets 404")
            } else {
                format!("`{strip}x` is in the location, and becomes `{put}x`")
            };
            reader.report(
                Finding::warning(
                    &pattern.span,
                    "a prefix that ends inside a segment, with a path in `upstream`",
                    label,
                )
                .related(&self.upstream.span, "the path that replaces it")
                .help(format!(
                    "write `{strip}/`, or `= {strip}` for this path alone"
                )),
            );
        }
        Some((strip != put).then(|| PathChange {
            strip: strip.into(),
            put: put.as_str().into(),
        }))
    }

    /// The keys of the location, and the site's keys that the location does not give.
    fn keys(&self, reader: &mut ConfigReader<'_>) -> Option<keys::Proxy> {
        let (own, site) = match (self.own, self.site_keys) {
            (None, None) => return keys::Proxy::absent(&self.upstream.span, reader),
            (Some(one), None) | (None, Some(one)) => return Some(one.value.clone()),
            (Some(own), Some(site)) => (own, site),
        };
        Some(keys::Proxy {
            host: own.host.or(&site.host).clone(),
            path: own.path.or(&site.path).clone(),
            x_forwarded: own.x_forwarded.or(&site.x_forwarded).clone(),
            forwarded: own.forwarded.or(&site.forwarded).clone(),
            via: own.via.or(&site.via).clone(),
            underscores: own.underscores.or(&site.underscores).clone(),
            upgrade: own.upgrade.or(&site.upgrade).clone(),
            hide: own.hide.or(&site.hide).clone(),
            redirects: own.redirects.or(&site.redirects).clone(),
            cookies: own.cookies.as_ref().or(site.cookies.as_ref()).cloned(),
            replace: own.replace.or(&site.replace).clone(),
            replace_types: own.replace_types.or(&site.replace_types).clone(),
            hold_request: own.hold_request.or(&site.hold_request).clone(),
            hold_response: own.hold_response.or(&site.hold_response).clone(),
            tunnel_timeout: own.tunnel_timeout.or(&site.tunnel_timeout).clone(),
            intercept_errors: own.intercept_errors.or(&site.intercept_errors).clone(),
            accel: own.accel.or(&site.accel).clone(),
            mirror: own.mirror.or(&site.mirror).clone(),
        })
    }
}

/// The `Host` for these origins.
fn host_field(
    keys: &keys::Proxy,
    upstream: &Setting<UpstreamName>,
    reader: &mut ConfigReader<'_>,
) -> Option<HostHeader> {
    Some(match &keys.host.value {
        ProxyHost::Client => HostHeader::Client,
        ProxyHost::Raw => HostHeader::AsSent,
        ProxyHost::Fixed(host) => HostHeader::Fixed(host.as_str().into()),
        ProxyHost::Origin => match &upstream.target {
            UpstreamTarget::Origin {
                authority: Some(host),
                ..
            } => HostHeader::Fixed(host.as_str().into()),
            _ => {
                reader.report(
                    Finding::error(
                        &keys.host.span,
                        "`$proxy_host` without a URL whose host it could be",
                        "expected `$http_host` or a name",
                    )
                    .related(&upstream.span, "the origins"),
                );
                return None;
            }
        },
    })
}

/// The form of paths.
pub(super) fn path_form(form: &keys::PathForm) -> PathForm {
    match form {
        keys::PathForm::Normalized => PathForm::Normalized,
        keys::PathForm::Raw => PathForm::Raw,
    }
}

fn cookies(raw: &keys::Cookies) -> CookieRules {
    CookieRules {
        domains: pairs(&raw.domains.0, |from| &from.0, |to| &to.0),
        paths: pairs(&raw.paths.0, |from| &from.0, |to| &to.0),
        secure: *raw.secure,
        http_only: *raw.http_only,
        same_site: raw.same_site.as_deref().copied().map(same_site),
    }
}

fn pairs<K, V>(
    entries: &[(Setting<K>, Setting<V>)],
    key: fn(&K) -> &String,
    value: fn(&V) -> &String,
) -> Vec<(Box<str>, Box<str>)> {
    entries
        .iter()
        .map(|(k, v)| (key(k).as_str().into(), value(v).as_str().into()))
        .collect()
}

fn substitutions(keys: &keys::Proxy, reader: &mut ConfigReader<'_>) -> Option<Substitutions> {
    if keys.replace.0.is_empty() && keys.replace_types.given {
        reader.report(Finding::error(
            &keys.replace_types.span,
            "`replace_types` has no effect",
            "there is no `replace`",
        ));
        return None;
    }
    let rules = keys.replace.0.iter().map(|(from, to)| Substitution {
        from: from.0.as_bytes().into(),
        to: to.0.as_bytes().into(),
    });
    let types = keys.replace_types.0.iter();
    let types = types.map(|kind| kind.0.as_str().into());
    Some(Substitutions::new(rules.collect(), types.collect()))
}

/// The settings of a site or of a location that follow from the keys of a service.
pub(super) fn service_settings(
    intercept_errors: &Setting<bool>,
    accel: &Setting<Switch<keys::Accel>>,
    reader: &mut ConfigReader<'_>,
) -> LocationSettings {
    let settings = LocationSettings::new().intercept_errors(intercept_errors.value);
    match accel.table(&accel.span, reader) {
        None => settings,
        Some(accel) => settings.accel(AccelSettings {
            files: pairs(&accel.files.0, |folder| &folder.0, |path| &path.0),
        }),
    }
}

/// The outer `None` is for errors.
pub(super) fn hold_response(
    hold: &Setting<Switch<keys::HoldResponse>>,
    reader: &mut ConfigReader<'_>,
) -> Option<Option<HoldSettings>> {
    let Some(hold) = hold.table(&hold.span, reader) else {
        return Some(None);
    };
    let folder = spool_folder(hold.folder.as_ref(), hold.disk.value.0, reader)?;
    Some(Some(HoldSettings {
        memory: hold.memory.value.0,
        disk: hold.disk.value.0,
        folder,
    }))
}

/// The outer `None` is for errors.
pub(super) fn hold_request(
    hold: &Setting<Switch<keys::HoldRequest>>,
    reader: &mut ConfigReader<'_>,
) -> Option<Option<HoldSettings>> {
    let Some(hold) = hold.table(&hold.span, reader) else {
        return Some(None);
    };
    let folder = spool_folder(hold.folder.as_ref(), hold.disk.value.0, reader)?;
    if hold.memory.value.0 == 0 && hold.disk.value.0 == 0 {
        reader.report(Finding::error(
            &hold.disk.span,
            "`hold_request` has no effect",
            "nothing is held in memory, nor in files",
        ));
        return None;
    }
    Some(Some(HoldSettings {
        memory: hold.memory.value.0,
        disk: hold.disk.value.0,
        folder,
    }))
}

/// Warns about a folder that the user of the server may not write to.
fn warn_of_read_only(folder: &Setting<FilePath>, reader: &mut ConfigReader<'_>) {
    let path = &folder.value.0;
    if rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        let user = SystemAccount::current_name();
        let title = format!("the user `{user}` may not write to {}", path.display());
        reader.report(Finding::warning(
            &folder.span,
            title,
            "the server runs as this user, so nothing is held here",
        ));
    }
}

/// The folder for bodies that are held in files; `None` for an error.
fn spool_folder(
    folder: Option<&Setting<FilePath>>,
    disk: u64,
    reader: &mut ConfigReader<'_>,
) -> Option<PathBuf> {
    let Some(folder) = folder else {
        return Some(SPOOL.into());
    };
    let path = &folder.value.0;
    let (title, label) = if disk == 0 {
        (
            "`folder` has no effect".to_owned(),
            "nothing is held in files",
        )
    } else if is_no_folder(path) {
        let title = format!("there is no folder {}", path.display());
        (title, "expected a folder")
    } else {
        warn_of_read_only(folder, reader);
        return Some(path.clone());
    };
    reader.report(Finding::error(&folder.span, title, label));
    None
}
