//! What differs between two plans, in words.

use std::fmt::{Debug, Write};

use apus_net::Limits;

use super::plan::{GlobalPlan, ServerPlan, SitePlan};

/// What a new plan changes, each in a few words; empty if nothing.
pub fn changes(old: &ServerPlan, new: &ServerPlan) -> Vec<String> {
    let mut changes: Vec<_> = keys(&old.global)
        .into_iter()
        .zip(keys(&new.global))
        .filter(|((_, old), (_, new))| old != new)
        .map(|((key, _), _)| format!("`{key}` of [global] changed"))
        .collect();
    if changes.is_empty() && written(&old.global) != written(&new.global) {
        changes.push("[global] changed".to_owned());
    }
    let name = |site: &SitePlan| site.name.clone();
    compare(
        "site",
        (&old.sites, &new.sites),
        name,
        site_changes,
        &mut changes,
    );
    let groups = (old.upstreams.as_slice(), new.upstreams.as_slice());
    let name = |group: &super::plan::UpstreamPlan| group.group.name.to_string();
    compare(
        "upstream group",
        groups,
        name,
        |_, _| Vec::new(),
        &mut changes,
    );
    changes
}

/// Adds which of the named parts of two plans are new, gone, or different.
fn compare<T: Debug>(
    what: &str,
    (old, new): (&[T], &[T]),
    name: impl Fn(&T) -> String,
    details: impl Fn(&T, &T) -> Vec<String>,
    changes: &mut Vec<String>,
) {
    for one in old {
        if !new.iter().any(|other| name(other) == name(one)) {
            changes.push(format!("{what} {} removed", name(one)));
        }
    }
    for one in new {
        let Some(before) = old.iter().find(|other| name(other) == name(one)) else {
            changes.push(format!("{what} {} added", name(one)));
            continue;
        };
        if written(before) != written(one) {
            let mut change = format!("{what} {} changed", name(one));
            let details = details(before, one);
            if !details.is_empty() {
                let _ = write!(change, ": {}", details.join(", "));
            }
            changes.push(change);
        }
    }
}

/// The parts of a site that differ.
fn site_changes(old: &SitePlan, new: &SitePlan) -> Vec<String> {
    let addresses = |site: &SitePlan| -> Vec<String> {
        let listeners = site.listeners.iter();
        listeners
            .map(|listener| listener.address.to_string())
            .collect()
    };
    let patterns = |site: &SitePlan| -> Vec<String> {
        let locations = site.locations.iter();
        locations
            .map(|location| location.pattern.to_string())
            .collect()
    };
    let mut details = Vec::new();
    lists("listener", &addresses(old), &addresses(new), &mut details);
    lists("location", &patterns(old), &patterns(new), &mut details);
    for location in &new.locations {
        let path = location.pattern.to_string();
        let mut before = old.locations.iter();
        let before = before.find(|before| before.pattern.to_string() == path);
        if before.is_some_and(|before| written(before) != written(location)) {
            details.push(format!("location {path}"));
        }
    }
    let mut part = |name: &str, is_same: bool| {
        if !is_same {
            details.push(name.to_owned());
        }
    };
    part(
        "server names",
        written(&old.server_names) == written(&new.server_names),
    );
    part(
        "certificates or TLS",
        written(&(&old.tls, &old.acme, &old.on_demand, &old.certificate_origin))
            == written(&(&new.tls, &new.acme, &new.on_demand, &new.certificate_origin)),
    );
    part("HTTP/3", written(&old.http3) == written(&new.http3));
    part(
        "access log",
        written(&old.access_log) == written(&new.access_log),
    );
    part(
        "maintenance",
        written(&old.maintenance) == written(&new.maintenance),
    );
    part(
        "challenge",
        written(&old.challenge) == written(&new.challenge),
    );
    part("handler", written(&old.handler) == written(&new.handler));
    part("settings", written(&old.settings) == written(&new.settings));
    details
}

/// Adds which items of two lists are new or gone.
fn lists(what: &str, old: &[String], new: &[String], details: &mut Vec<String>) {
    let gone = old.iter().filter(|one| !new.contains(one));
    details.extend(gone.map(|one| format!("{what} {one} removed")));
    let added = new.iter().filter(|one| !old.contains(one));
    details.extend(added.map(|one| format!("{what} {one} added")));
}

/// A value as text, without its places in files.
fn written(value: &impl Debug) -> String {
    const SPAN: &str = "SourceSpan {";
    let text = format!("{value:?}");
    let mut parts = text.split(SPAN);
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        written.push_str(part.split_once('}').map_or("", |(_, after)| after));
    }
    written
}

/// The keys of the whole server, and their values.
fn keys(global: &GlobalPlan) -> Vec<(&'static str, String)> {
    let GlobalPlan {
        workers,
        limits,
        h2c,
        account,
        control_socket,
        admin,
        metrics,
        cache,
        static_cache_bytes,
        response_memory_bytes,
        server_header,
        unknown_name,
        log_level,
        trusted_proxies,
        acme_folder,
        acme_storage,
        stores_tickets,
        bans,
        glitches,
        geo_databases,
        state_folder,
        tls_key_log,
        otlp,
        ..
    } = global;
    let Limits {
        worker_connections,
        max_connections,
        connections_per_address,
        target_bytes,
        head_bytes,
        head_fields,
        head_timeout,
        handshake_timeout,
        idle_timeout,
        body_timeout,
        body_rate,
        send_timeout,
        drain_bytes,
        requests_per_connection,
        h2_max_concurrent_streams,
        h2_max_frame_size,
        h2_requests_per_connection,
        h2_ping_interval,
        h2_receive_window,
        stop_timeout,
        send_rate,
        h2_max_tunnels,
        ..
    } = limits;
    vec![
        ("worker_threads", written(workers)),
        ("worker_connections", written(worker_connections)),
        ("max_connections", written(max_connections)),
        ("connections_per_address", written(connections_per_address)),
        ("client_target_size", written(target_bytes)),
        ("client_header_size", written(head_bytes)),
        ("client_header_fields", written(head_fields)),
        ("client_header_timeout", written(head_timeout)),
        ("handshake_timeout", written(handshake_timeout)),
        ("keepalive_timeout", written(idle_timeout)),
        ("client_body_timeout", written(body_timeout)),
        ("client_body_rate", written(body_rate)),
        ("send_timeout", written(send_timeout)),
        ("send_rate", written(send_rate)),
        ("h2_max_tunnels", written(h2_max_tunnels)),
        ("discard_body_size", written(drain_bytes)),
        ("keepalive_requests", written(requests_per_connection)),
        (
            "h2_max_concurrent_streams",
            written(h2_max_concurrent_streams),
        ),
        ("h2_max_frame_size", written(h2_max_frame_size)),
        (
            "h2_max_requests_per_conn",
            written(h2_requests_per_connection),
        ),
        ("h2_ping_interval", written(h2_ping_interval)),
        ("h2_receive_window", written(h2_receive_window)),
        ("stop_timeout", written(stop_timeout)),
        ("h2c", written(h2c)),
        ("user", written(account)),
        ("control_socket", written(control_socket)),
        ("cache", written(cache)),
        ("static_cache_size", written(static_cache_bytes)),
        ("response_memory", written(response_memory_bytes)),
        ("server_header", written(server_header)),
        ("ssl_reject_unknown", written(unknown_name)),
        ("log_level", written(log_level)),
        ("trusted_proxies", written(trusted_proxies)),
        ("acme_folder", written(acme_folder)),
        ("acme_storage", written(acme_storage)),
        ("tls_tickets", written(stores_tickets)),
        ("admin_listen", written(admin)),
        ("metrics", written(metrics)),
        ("bans", written(bans)),
        ("glitches", written(&glitches.threshold)),
        ("geo_databases", written(geo_databases)),
        ("state_folder", written(state_folder)),
        ("tls_key_log", written(tls_key_log)),
        ("otlp", written(otlp)),
    ]
}
