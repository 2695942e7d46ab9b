//! The keys of the cache: the rules of a handler, and the store.

use apus_cache::policy::{
    CacheRules, ClientDirectiveRule, CredentialRules, HeuristicLifetime, IgnoredFields,
    KeyHostRule, KeyQueryRule, KeyRules, SetCookieRule, SharingRule, StatusTtl,
};
use apus_cache::service::{CacheSettings, PurgeAccess};
use apus_cache::store::{DiskSettings, StoreSettings};
use apus_conditions::FactStage;

use super::conditions::Conditions;
use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, ConfigTable};
use crate::plan::CacheStorePlan;
use crate::raw::cache as keys;
use crate::source::{Setting, SourceSpan};
use crate::string_type::FieldName;
use crate::string_type::caching::{KeyHost, KeyQuery, NamePatternText};
use crate::value::{OneOrMore, Switch};

type CacheKeys<'a> = Option<&'a Setting<Switch<keys::Cache>>>;

/// The cache of a location, by its own keys and the keys of its site. The outer `None` is for
/// errors, the inner one for no cache.
pub(super) fn settings(
    own: CacheKeys<'_>,
    of_site: CacheKeys<'_>,
    conditions: &Conditions,
    reader: &mut ConfigReader<'_>,
) -> Option<Option<CacheSettings>> {
    let Some(said) = own.or(of_site) else {
        return Some(None);
    };
    let table = |said: CacheKeys<'_>, reader: &mut ConfigReader<'_>| {
        said.and_then(|said| said.table(&said.span, reader))
    };
    let (own, keys) = match (&said.value, table(own, reader), table(of_site, reader)) {
        (Switch::Off, ..) => return Some(None),
        (Switch::As(_), Some(own), Some(site)) => {
            let merged = merged(&own, &site);
            (own, merged)
        }
        // `true` in a location means the settings of the site.
        (Switch::On, _, Some(site)) => (site.clone(), site),
        (_, own, site) => {
            let only = own.or(site)?;
            (only.clone(), only)
        }
    };
    let is_effective = refuse_useless(&own, &keys, reader);
    let settings = of_table(&keys, &said.span, conditions, reader)?;
    is_effective.then_some(Some(settings))
}

/// The keys of the location, and the site's keys that the location does not give.
fn merged(own: &keys::Cache, site: &keys::Cache) -> keys::Cache {
    keys::Cache {
        ttl: own.ttl.or(&site.ttl).clone(),
        ttl_overrides: own.ttl_overrides.or(&site.ttl_overrides).clone(),
        max_ttl: own.max_ttl.as_ref().or(site.max_ttl.as_ref()).cloned(),
        heuristic: own.heuristic.or(&site.heuristic).clone(),
        stale_while_revalidate: own
            .stale_while_revalidate
            .or(&site.stale_while_revalidate)
            .clone(),
        stale_if_error: own.stale_if_error.or(&site.stale_if_error).clone(),
        max_size: own.max_size.or(&site.max_size).clone(),
        minimum_uses: own.minimum_uses.or(&site.minimum_uses).clone(),
        ignore: own.ignore.or(&site.ignore).clone(),
        targeted: own.targeted.or(&site.targeted).clone(),
        accel_expires: own.accel_expires.or(&site.accel_expires).clone(),
        set_cookie: own.set_cookie.or(&site.set_cookie).clone(),
        authorization: own.authorization.or(&site.authorization).clone(),
        cookies: own.cookies.or(&site.cookies).clone(),
        session_cookies: own.session_cookies.or(&site.session_cookies).clone(),
        harmless_cookies: own.harmless_cookies.or(&site.harmless_cookies).clone(),
        client_directives: own.client_directives.or(&site.client_directives).clone(),
        trusted_clients: own.trusted_clients.or(&site.trusted_clients).clone(),
        store_errors: own.store_errors.or(&site.store_errors).clone(),
        store_parts: own.store_parts.or(&site.store_parts).clone(),
        refuse_disguised: own.refuse_disguised.or(&site.refuse_disguised).clone(),
        tag_fields: own.tag_fields.or(&site.tag_fields).clone(),
        hide_tags: own.hide_tags.or(&site.hide_tags).clone(),
        key: match (&own.key, &site.key) {
            (Some(own), Some(site)) => Some(Setting {
                value: merged_key(own, site),
                ..own.clone()
            }),
            (own, site) => own.as_ref().or(site.as_ref()).cloned(),
        },
        bypass_cookies: own.bypass_cookies.or(&site.bypass_cookies).clone(),
        bypass_headers: own.bypass_headers.or(&site.bypass_headers).clone(),
        bypass_when: own
            .bypass_when
            .as_ref()
            .or(site.bypass_when.as_ref())
            .cloned(),
        lock_timeout: own.lock_timeout.or(&site.lock_timeout).clone(),
        status_field: own.status_field.or(&site.status_field).clone(),
        purge_token: own
            .purge_token
            .as_ref()
            .or(site.purge_token.as_ref())
            .cloned(),
    }
}

fn merged_key(own: &keys::CacheKey, site: &keys::CacheKey) -> keys::CacheKey {
    keys::CacheKey {
        scheme: own.scheme.or(&site.scheme).clone(),
        host: own.host.or(&site.host).clone(),
        query: own.query.or(&site.query).clone(),
        sort_query: own.sort_query.or(&site.sort_query).clone(),
        headers: own.headers.or(&site.headers).clone(),
        cookies: own.cookies.or(&site.cookies).clone(),
        device: own.device.or(&site.device).clone(),
    }
}

fn of_table(
    keys: &keys::Cache,
    span: &SourceSpan,
    conditions: &Conditions,
    reader: &mut ConfigReader<'_>,
) -> Option<CacheSettings> {
    let key = match &keys.key {
        Some(key) => key.value.clone(),
        None => keys::CacheKey::absent(span, reader)?,
    };
    let heuristic = keys.heuristic.table(&keys.heuristic.span, reader);
    let ignores = |what| keys.ignore.0.iter().any(|ignored| ignored.value == what);
    let rules = CacheRules {
        key: key_rules(&key),
        ttl: keys
            .ttl
            .0
            .iter()
            .map(|(statuses, ttl)| StatusTtl {
                first: statuses.first,
                last: statuses.last,
                ttl: *ttl,
            })
            .collect(),
        ttl_overrides: *keys.ttl_overrides,
        max_ttl: keys.max_ttl.as_ref().map(|longest| longest.0),
        heuristic: heuristic.map(|guess| HeuristicLifetime {
            percent: super::small(guess.percent.0),
            max: guess.max.0,
            with_query: *guess.with_query,
        }),
        stale_while_revalidate: keys.stale_while_revalidate.0,
        stale_if_error: keys.stale_if_error.0,
        max_size: keys.max_size.value.0,
        minimum_uses: super::small(keys.minimum_uses.0),
        ignored: IgnoredFields {
            cache_control: ignores(keys::Ignorable::CacheControl),
            expires: ignores(keys::Ignorable::Expires),
            vary: ignores(keys::Ignorable::Vary),
        },
        targeted: field_names(&keys.targeted),
        accel_expires: *keys.accel_expires,
        set_cookie: match keys.set_cookie.value {
            keys::SetCookie::Refuse => SetCookieRule::Refuse,
            keys::SetCookie::Remove => SetCookieRule::Remove,
            keys::SetCookie::Keep => SetCookieRule::Keep,
        },
        credentials: CredentialRules {
            authorization: sharing(keys.authorization.value),
            cookies: sharing(keys.cookies.value),
            session_cookies: patterns(&keys.session_cookies),
            harmless_cookies: patterns(&keys.harmless_cookies),
        },
        client_directives: match keys.client_directives.value {
            keys::ClientDirectives::Ignore => ClientDirectiveRule::Ignore,
            keys::ClientDirectives::Trusted => ClientDirectiveRule::Trusted,
            keys::ClientDirectives::Honour => ClientDirectiveRule::Honour,
        },
        store_errors: *keys.store_errors,
        store_parts: *keys.store_parts,
        refuse_disguised: *keys.refuse_disguised,
        tag_fields: field_names(&keys.tag_fields),
        hide_tags: *keys.hide_tags,
    };
    let bypass_when = match &keys.bypass_when {
        Some(when) => Some(conditions.compile(when, FactStage::Authentication, reader)?),
        None => None,
    };
    Some(CacheSettings {
        by_sent_target: false,
        rules,
        bypass_cookies: patterns(&keys.bypass_cookies),
        bypass_headers: field_names(&keys.bypass_headers),
        // Set from the preset.
        bypass_paths: Vec::new(),
        bypass_when,
        trusted: keys
            .trusted_clients
            .0
            .iter()
            .map(|network| network.value.0)
            .collect(),
        lock_timeout: keys.lock_timeout.0,
        status_field: *keys.status_field,
        fastcgi_field: false,
        purge: keys.purge_token.as_ref().map(|token| PurgeAccess {
            token: token.0.as_str().into(),
        }),
    })
}

/// Reports keys of the table `own` that have no effect with the others of `keys`, which may come
/// from the site. Returns whether there were none.
fn refuse_useless(own: &keys::Cache, keys: &keys::Cache, reader: &mut ConfigReader<'_>) -> bool {
    let trusts = keys.client_directives.value == keys::ClientDirectives::Trusted;
    let shares = keys.cookies.value == keys::Sharing::Always;
    let has_no_query = |key: &Setting<keys::CacheKey>| matches!(key.query.value, KeyQuery::Nothing);
    let sorting = own.key.as_ref().map(|key| &key.sort_query);
    let sorting = sorting.filter(|sort| ***sort && keys.key.as_ref().is_some_and(has_no_query));
    let useless = [
        useless(
            "ttl_overrides",
            &own.ttl_overrides,
            *own.ttl_overrides && keys.ttl.0.is_empty(),
            "there is no `ttl`",
        ),
        useless(
            "trusted_clients",
            &own.trusted_clients,
            !trusts,
            "it is for `client_directives = \"trusted\"`",
        ),
        useless(
            "session_cookies",
            &own.session_cookies,
            shares,
            "`cookies = \"always\"` shares with all",
        ),
        useless(
            "harmless_cookies",
            &own.harmless_cookies,
            shares,
            "`cookies = \"always\"` shares with all",
        ),
        useless(
            "hide_tags",
            &own.hide_tags,
            keys.tag_fields.0.is_empty(),
            "there are no `tag_fields`",
        ),
        sorting.and_then(|sort| useless("sort_query", sort, true, "nothing of the query counts")),
    ];
    let mut is_effective = true;
    for finding in useless.into_iter().flatten() {
        reader.report(finding);
        is_effective = false;
    }
    is_effective
}

/// The error about a key without effect.
fn useless<T>(name: &str, key: &Setting<T>, is_useless: bool, why: &str) -> Option<Finding> {
    let title = || format!("`{name}` has no effect");
    (key.given && is_useless).then(|| Finding::error(&key.span, title(), why))
}

fn key_rules(key: &keys::CacheKey) -> KeyRules {
    let names = |names: &[NamePatternText]| names.iter().map(NamePatternText::pattern).collect();
    KeyRules {
        scheme: *key.scheme,
        host: match &key.host.value {
            KeyHost::Requested => KeyHostRule::Requested,
            KeyHost::Named(name) => KeyHostRule::Named(name.as_str().into()),
        },
        query: match &key.query.value {
            KeyQuery::All => KeyQueryRule::All,
            KeyQuery::Nothing => KeyQueryRule::Ignored,
            KeyQuery::Only(only) => KeyQueryRule::Only(names(only)),
            KeyQuery::Except(except) => KeyQueryRule::Except(names(except)),
        },
        sort_query: *key.sort_query,
        headers: field_names(&key.headers),
        cookies: key
            .cookies
            .0
            .iter()
            .map(|name| name.0.as_str().into())
            .collect(),
        device: *key.device,
        // Set where rules choose.
        rule_choice: false,
    }
}

fn sharing(said: keys::Sharing) -> SharingRule {
    match said {
        keys::Sharing::Declared => SharingRule::Declared,
        keys::Sharing::Always => SharingRule::Always,
    }
}

fn patterns(names: &OneOrMore<NamePatternText>) -> Vec<apus_cache::policy::CacheNamePattern> {
    names.0.iter().map(|name| name.pattern()).collect()
}

fn field_names(names: &OneOrMore<FieldName>) -> Vec<Box<str>> {
    let lower = |name: &Setting<FieldName>| name.0.to_ascii_lowercase().into();
    names.0.iter().map(lower).collect()
}

/// The store of cached responses.
pub(super) fn store(
    raw: &keys::CacheStore,
    reader: &mut ConfigReader<'_>,
) -> Option<CacheStorePlan> {
    let Some(dir) = &raw.dir else {
        let mut given = Vec::new();
        given.extend(raw.size.as_ref().map(|key| ("size", &key.span)));
        given.extend(
            raw.object_size
                .as_ref()
                .map(|key| ("object_size", &key.span)),
        );
        for (name, is_given, span) in [
            ("min_free", raw.min_free.given, &raw.min_free.span),
            ("threads", raw.threads.given, &raw.threads.span),
            (
                "write_buffer",
                raw.write_buffer.given,
                &raw.write_buffer.span,
            ),
            ("open_files", raw.open_files.given, &raw.open_files.span),
        ] {
            given.extend(is_given.then_some((name, span)));
        }
        for (name, span) in &given {
            reader.report(Finding::error(
                span,
                format!("`{name}` has no effect"),
                "there is no `dir`, and nothing on disk",
            ));
        }
        return given.is_empty().then(|| CacheStorePlan {
            settings: memory(raw),
            disk: None,
        });
    };
    let Some(size) = &raw.size else {
        reader.report(Finding::error(
            &dir.span,
            "`dir` without `size`",
            "expected `size`, the disk space of stored responses, in MB",
        ));
        return None;
    };
    let mut disk = DiskSettings::new(dir.value.0.clone(), size.value.0);
    if let Some(largest) = &raw.object_size {
        disk.object_bytes = largest.value.0;
    }
    disk.min_free_bytes = raw.min_free.value.0;
    disk.threads = raw.threads.size();
    Some(CacheStorePlan {
        settings: memory(raw),
        disk: Some(disk),
    })
}

fn memory(raw: &keys::CacheStore) -> StoreSettings {
    StoreSettings {
        memory_bytes: raw.memory_size.value.0,
        memory_object_bytes: raw.memory_object_size.value.0,
        max_variants: raw.max_variants.size(),
        window_bytes: raw.shared_window.value.0,
        unwritten_bytes: raw.write_buffer.value.0,
        open_files: raw.open_files.0,
        lag: raw.shared_lag.0,
    }
}
