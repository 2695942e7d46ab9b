//! From the keys of the files to a plan: inheritance, exclusions, what must exist.

mod cache;
mod content;
mod listen;
mod php;
mod proxy;
mod tls;
mod upstream;

use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use apus_compress::Compression;
use apus_http::TrustedProxies;
use apus_net::tls::UnknownName;
use apus_net::{Account, Limits, UnknownAccount};
use apus_sites::Hsts;

use super::diagnostics::{Diagnostics, Finding};
use super::files::is_no_folder;
use super::keys::{Reader, Table, shown};
use super::plan::{AccessLog, CacheStore, Global, Plan, Site, Upstream};
use super::raw;
use super::source::{At, Place};
use super::value::Text;
use super::word::Host;
use apus_access_log::Format;
pub use php::default_pool_folder;
use upstream::Groups;

/// Makes the plan, or `None` after mistakes have been reported.
pub(super) fn plan(file: raw::File, reader: &mut Reader<'_>) -> Option<Plan> {
    let top = Place {
        file: 0,
        span: 0..0,
    };
    let raw_global = match file.global {
        Some(global) => global.value,
        None => raw::Global::absent(&top, reader)?,
    };
    let inherited = Inherited {
        access_log: raw_global
            .access_log
            .as_ref()
            .and_then(|log| access_log(log, reader)),
        compress: match &raw_global.compress {
            Some(compress) => compress.value.clone(),
            None => raw::Compress::absent(&top, reader)?,
        },
        max_body_bytes: raw_global.client_max_body_size.value.0,
        trusts_proxies: !raw_global.trusted_proxies.0.is_empty(),
    };
    let cache = match &raw_global.cache {
        Some(raw) => cache::store(raw, reader),
        None => Some(CacheStore::default()),
    };
    let cache_place = raw_global.cache.as_ref().map(|cache| cache.place.clone());
    let global = global(raw_global, cache.unwrap_or_default(), reader);
    if file.sites.0.is_empty()
        && !(file.sites.given && reader.findings.iter().any(Finding::is_error))
    {
        reader.report(
            Finding::error(
                &file.sites.place,
                "there is no site",
                "expected [[sites]] here or in an included file",
            )
            .help("the least is: [[sites]], listen = 8080, root = \"public\""),
        );
    }
    listen::check(&file.sites.0, reader);
    let mut upstreams: Vec<Upstream> = Vec::new();
    let sites: Vec<_> = file
        .sites
        .value
        .0
        .into_iter()
        .enumerate()
        .filter_map(|(at, raw)| {
            let resolved = site(&raw, at, &inherited, reader)?;
            for upstream in resolved.upstreams {
                // The same URL in two sites is the same group.
                let name = &upstream.group.name;
                if !upstreams.iter().any(|known| known.group.name == *name) {
                    upstreams.push(upstream);
                }
            }
            Some((resolved.site, resolved.named))
        })
        .collect();
    check_names(&sites, reader);
    let mut plan = Plan {
        global,
        sites: sites.into_iter().map(|(site, _)| site).collect(),
        upstreams,
        warnings: Diagnostics::default(),
    };
    plan.mark_programs();
    let unused = cache_place.filter(|_| plan.caches().next().is_none());
    if let Some(place) = unused.filter(|_| !reader.findings.iter().any(Finding::is_error)) {
        reader.report(
            Finding::warning(&place, "nothing is cached", "no site uses this").help(
                "add cache = true to a site or location with an `upstream`, or to its table \
                     `fastcgi`",
            ),
        );
    }
    Some(plan)
}

/// What sites have of `[global]`.
struct Inherited {
    access_log: Option<AccessLog>,
    compress: raw::Compress,
    max_body_bytes: u64,
    /// Whether proxies in front are trusted.
    trusts_proxies: bool,
}

fn global(raw: raw::Global, cache: CacheStore, reader: &mut Reader<'_>) -> Global {
    if raw.client_target_size.0 > raw.client_header_size.0 && raw.client_target_size.given {
        reader.report(
            Finding::error(
                &raw.client_target_size.place,
                "a request target longer than a whole head",
                "expected at most `client_header_size`",
            )
            .related(&raw.client_header_size.place, "the head's size"),
        );
    }
    let trusted_proxies = trusted_proxies(&raw, reader);
    let cores = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    Global {
        workers: NonZeroUsize::new(raw.worker_threads.size()).unwrap_or(cores),
        limits: Limits {
            worker_connections: raw.worker_connections.size(),
            max_connections: raw.max_connections.size(),
            connections_per_address: raw.connections_per_address.size(),
            target_bytes: raw.client_target_size.size(),
            head_bytes: raw.client_header_size.size(),
            head_fields: raw.client_header_fields.size(),
            head_timeout: raw.client_header_timeout.0,
            handshake_timeout: raw.handshake_timeout.0,
            idle_timeout: raw.keepalive_timeout.0,
            body_timeout: raw.client_body_timeout.0,
            body_rate: raw.client_body_rate.0,
            send_timeout: raw.send_timeout.0,
            drain_bytes: raw.discard_body_size.0,
            requests_per_connection: raw.keepalive_requests.0,
            h2_max_concurrent_streams: small(raw.h2_max_concurrent_streams.0),
            h2_max_frame_size: small(raw.h2_max_frame_size.0),
            h2_requests_per_connection: raw.h2_max_requests_per_conn.0,
            h2_ping_interval: raw.h2_ping_interval.0,
            h2_receive_window: small(raw.h2_receive_window.value.0),
            stop_timeout: raw.stop_timeout.0,
        },
        h2c: *raw.h2c,
        account: account(raw.user.as_ref(), raw.group.as_ref(), reader),
        control_socket: raw.control_socket.map(|path| path.value.0),
        cache,
        static_cache_bytes: raw.static_cache_size.value.0,
        response_memory_bytes: raw.response_memory.value.0,
        server_header: *raw.server_header,
        unknown_name: if *raw.ssl_reject_unknown {
            UnknownName::Reject
        } else {
            UnknownName::FirstSite
        },
        log_level: *raw.log_level,
        trusted_proxies,
    }
}

/// The proxies in front of the server, and what they say of clients.
fn trusted_proxies(raw: &raw::Global, reader: &mut Reader<'_>) -> TrustedProxies {
    let networks = &raw.trusted_proxies;
    if networks.0.is_empty() {
        let header = raw
            .trusted_proxies_header
            .given
            .then_some(&raw.trusted_proxies_header.place);
        let pass = raw
            .trusted_proxies_pass
            .given
            .then_some(&raw.trusted_proxies_pass.place);
        for place in [header, pass].into_iter().flatten() {
            reader.report(
                Finding::warning(
                    place,
                    "no proxy is trusted",
                    "this is for `trusted_proxies`",
                )
                .help("add trusted_proxies with the addresses of the proxies in front"),
            );
        }
    }
    let trusted = TrustedProxies::new(networks.0.iter().map(|network| network.value.0));
    let trusted = match *raw.trusted_proxies_header {
        raw::TrustedHeader::XForwardedFor => trusted,
        raw::TrustedHeader::Forwarded => trusted.forwarded(),
    };
    let names = raw.trusted_proxies_pass.0.iter();
    names.fold(trusted, |trusted, name| trusted.pass(&*name.0))
}

/// The account that `user` and `group` name; without a user, the one that is the default.
pub(super) fn account(
    user: Option<&At<Text>>,
    group: Option<&At<Text>>,
    reader: &mut Reader<'_>,
) -> Option<Account> {
    let group_name = group.map(|group| group.0.as_str());
    let found = match (user, group) {
        (None, None) => return None,
        (Some(user), _) => Account::find(&user.0, group_name),
        (None, Some(_)) => Account::unprivileged(group_name),
    };
    let error = match found {
        Ok(account) => return Some(account),
        Err(error) => error,
    };
    let place = match (&error, user, group) {
        (UnknownAccount::Group(_), _, Some(group)) => &group.place,
        (_, Some(user), _) => &user.place,
        (_, None, Some(group)) => &group.place,
        (_, None, None) => return None,
    };
    reader.report(Finding::error(
        place,
        error.to_string(),
        "expected a name or number",
    ));
    None
}

/// A number whose key allows none that is larger than the type.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// As [`small`].
fn tiny(number: u64) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

fn access_log(raw: &At<raw::AccessLogChoice>, reader: &mut Reader<'_>) -> Option<AccessLog> {
    let (path, format) = match &raw.value {
        raw::AccessLogChoice::Off => return None,
        raw::AccessLogChoice::Path(path) => (path, Format::combined()),
        raw::AccessLogChoice::Table(table) => {
            let format = match table.format.0.as_str() {
                "combined" => Format::combined(),
                "json" => Format::json(),
                template => log_template(template, &table.format.place, reader)?,
            };
            (&table.path.value, format)
        }
    };
    let folder = path.0.parent().filter(|folder| is_no_folder(folder));
    if let Some(folder) = folder {
        reader.report(
            Finding::error(
                &raw.place,
                format!("there is no folder {} for the access log", folder.display()),
                "expected a path in a folder that exists",
            )
            .help("make the folder; the file in it is made when it is needed"),
        );
        return None;
    }
    Some(AccessLog {
        path: path.0.clone(),
        format,
    })
}

fn log_template(text: &str, place: &Place, reader: &mut Reader<'_>) -> Option<Format> {
    if !text.contains('$') {
        reader.report(Finding::error(
            place,
            format!("`{}` is not a format of access logs", shown(text)),
            "expected `combined`, `json`, or a line with variables as $remote_addr",
        ));
        return None;
    }
    Format::template(text)
        .map_err(|error| {
            reader.report(Finding::error(place, error.to_string(), "in this format"));
        })
        .ok()
}

/// A site, and what is needed to look at all of them.
struct Resolved {
    site: Site,
    named: Named,
    upstreams: Vec<Upstream>,
}

fn site(
    raw: &At<raw::Site>,
    at: usize,
    inherited: &Inherited,
    reader: &mut Reader<'_>,
) -> Option<Resolved> {
    let named = Named {
        place: raw
            .name
            .as_ref()
            .map_or_else(|| raw.place.clone(), |name| name.place.clone()),
        hosts: raw
            .server_name
            .0
            .iter()
            .map(|host| host.place.clone())
            .collect(),
        site: raw.place.clone(),
    };
    let listeners = listen::listeners(raw, inherited.trusts_proxies, reader);
    let tls = tls::site(raw, reader);
    let access_log = match &raw.access_log {
        Some(log) => access_log(log, reader),
        None => inherited.access_log.clone(),
    };
    let names: Vec<_> = raw
        .server_name
        .0
        .iter()
        .filter_map(|host| match &host.value {
            Host::Name(name, _) => Some(name.clone()),
            Host::Other => None,
        })
        .collect();
    let name = match &raw.name {
        Some(name) => name.0.clone(),
        None => match names.first() {
            Some(first) => first.to_string(),
            None => format!("site-{}", at + 1),
        },
    };
    let groups = Groups::new(raw, &name, reader);
    let (content, locations) = content::Resolver::new(raw, inherited, &groups).contents(reader)?;
    groups.warn_of_unused(reader);
    let of_all = &inherited.compress;
    let compress = raw.compress.as_ref().map_or(of_all, |own| &own.value);
    let site = Site {
        name,
        is_fallback: names.len() < raw.server_name.0.len() || names.is_empty(),
        server_names: names,
        listeners,
        tls,
        force_https: *raw.force_https,
        hsts: raw.hsts.as_ref().map(|hsts| Hsts {
            max_age: hsts.max_age.0.as_secs(),
            include_subdomains: *hsts.include_subdomains,
            preload: *hsts.preload,
        }),
        access_log,
        compression: Compression {
            gzip: **compress.gzip.or(&of_all.gzip),
            brotli: **compress.brotli.or(&of_all.brotli),
            zstd: **compress.zstd.or(&of_all.zstd),
            min_length: compress.min_length.or(&of_all.min_length).0,
            gzip_level: tiny(compress.gzip_level.or(&of_all.gzip_level).0),
            brotli_level: tiny(compress.brotli_level.or(&of_all.brotli_level).0),
            zstd_level: tiny(compress.zstd_level.or(&of_all.zstd_level).0),
        },
        precompressed: **compress.precompressed.or(&of_all.precompressed),
        content,
        locations,
    };
    Some(Resolved {
        site,
        named,
        upstreams: groups.into_plans(),
    })
}

/// Where the names of a site stand.
struct Named {
    site: Place,
    place: Place,
    hosts: Vec<Place>,
}

/// Reports names that two sites have.
fn check_names(sites: &[(Site, Named)], reader: &mut Reader<'_>) {
    for (at, (site, named)) in sites.iter().enumerate() {
        let before = sites.get(..at).unwrap_or_default();
        if let Some((_, other)) = before.iter().find(|(other, _)| other.name == site.name) {
            reader.report(
                Finding::error(
                    &named.place,
                    format!("two sites are called `{}`", shown(&site.name)),
                    "expected a name that no other site has",
                )
                .related(&other.place, "the other one")
                .help("give one of them another `name`; logs tell sites apart by it"),
            );
            continue;
        }
        for (other, other_named) in before {
            let Some(shared) = shared_listener(site, other) else {
                continue;
            };
            for (name, place) in site.server_names.iter().zip(&named.hosts) {
                let name = name.to_string();
                if let Some(found) = other
                    .server_names
                    .iter()
                    .position(|o| o.to_string() == name)
                {
                    let finding = Finding::error(
                        place,
                        format!("two sites are for the host `{name}` on {shared}"),
                        "expected a host that no other site is for",
                    );
                    reader.report(match other_named.hosts.get(found) {
                        Some(place) => finding.related(place, "the other one"),
                        None => finding,
                    });
                }
            }
            if site.is_fallback && other.is_fallback {
                reader.report(
                    Finding::error(
                        &named.site,
                        format!("two sites are for all other hosts on {shared}"),
                        "this one, for it has no `server_name` or `_`",
                    )
                    .related(&other_named.site, "the other one")
                    .help("give one of them a `server_name`"),
                );
            }
        }
    }
}

fn shared_listener(one: &Site, two: &Site) -> Option<String> {
    one.listeners
        .iter()
        .find(|one| two.listeners.iter().any(|two| two.address == one.address))
        .map(|shared| shared.address.to_string())
}
