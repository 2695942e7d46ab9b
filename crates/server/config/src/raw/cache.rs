//! The keys of the cache: `[sites.cache]`, `[sites.locations.cache]` and `[global.cache]`.

use super::{YEAR, not_given};
use crate::keys::{choices, keys};
use crate::size::{Kilobytes, Megabytes};
use crate::source::Setting;
use crate::string_type::caching::{KeyHost, KeyQuery, Lifetimes, NamePatternText, PurgeToken};
use crate::string_type::origin::Token;
use crate::string_type::{FieldName, NetworkText};
use crate::value::{FilePath, Int, OneOrMore, Seconds, Switch};
use crate::when::When;

const TEN_YEARS: u64 = 10 * YEAR;

keys! {
    /// The store of cached responses of all sites. Changes take effect with a restart.
    pub(crate) struct CacheStore {
        /// Memory for cached responses, in MB.
        memory_size: Megabytes<1, 100_000_000> = Megabytes::new(256),
        /// The largest response in memory, in MB; at most an eighth of `memory_size`.
        memory_object_size: Megabytes<0, 100_000_000> = Megabytes::new(1),
        /// The most responses for one key that differ by `Vary`. A further one replaces another.
        max_variants: Int<1, 10_000> = Int(32),
        /// Memory for a response that is fetched for several clients and cannot be stored, in KB.
        shared_window: Kilobytes<64, 1_000_000> = Kilobytes::new(1024),
        /// How long a slow client of such a response may delay the others before its response is
        /// aborted, in seconds.
        shared_lag: Seconds<0, YEAR> = Seconds::new(5),
        /// The folder for responses on disk, which is created if necessary. Only one server can use
        /// it. By default none are on disk.
        dir: FilePath,
        /// Disk space for cached responses, in MB. Required with `dir`.
        size: Megabytes<1, 1_000_000_000_000>,
        /// The largest response on disk, in MB; at most half of `size`, which is the default.
        object_size: Megabytes<0, 1_000_000_000_000>,
        /// Free space of the file system, in MB: cached responses are removed before there is less.
        min_free: Megabytes<0, 1_000_000_000_000> = Megabytes::new(0),
        /// Threads that read and write files of the cache.
        threads: Int<1, 256> = Int(4),
        /// Memory for data of one response that waits to be written to disk, in KB.
        write_buffer: Kilobytes<64, 1_000_000> = Kilobytes::new(2048),
        /// Files of the cache that are kept open.
        open_files: Int<1, 1_000_000> = Int(2048),
    }
}

keys! {
    /// The cache for responses of origins (RFC 9111). Their fields decide what is stored and for
    /// how long, unless a key says otherwise. A location's own table changes the keys that it
    /// gives; the others are as in the site's.
    pub(crate) struct Cache {
        /// The freshness lifetime of responses whose origin does not give one: a time for 200, 206,
        /// 301 and 308, or a table from statuses and classes of them to times: `{ "200" = 300,
        /// "404" = 10, "5xx" = 1 }`.
        ttl: Lifetimes = Lifetimes::default(),
        /// Whether `ttl` overrides the lifetime that the origin gives. `private` and `no-store`
        /// still apply.
        ttl_overrides: bool = false,
        /// The longest freshness lifetime of any response, in seconds.
        max_ttl: Seconds<0, TEN_YEARS>,
        /// Whether a lifetime is computed from `Last-Modified` if there is no other.
        heuristic: Switch<Heuristic> = Switch::On,
        /// How long stale responses are sent while they are revalidated, in seconds, unless the
        /// origin gives a time or forbids it.
        stale_while_revalidate: Seconds<0, TEN_YEARS> = Seconds::new(0),
        /// How long stale responses are sent if the origin fails, in seconds, unless the origin
        /// gives a time or forbids it.
        stale_if_error: Seconds<0, TEN_YEARS> = Seconds::new(0),
        /// The largest response that is stored, in MB.
        max_size: Megabytes<0, 1_000_000_000> = Megabytes::new(1024),
        /// The number of requests for a key before its response is stored.
        minimum_uses: Int<1, 1_000_000> = Int(1),
        /// Response fields that are ignored: `cache_control` (and with it `private` and
        /// `no-store`), `expires`, `vary`.
        ignore: OneOrMore<Ignorable> = OneOrMore::default(),
        /// Targeted fields for this cache (RFC 9213). The first that a response has replaces
        /// `Cache-Control` and `Expires`.
        targeted: OneOrMore<FieldName> = OneOrMore(fields(&["CDN-Cache-Control"])),
        /// Whether `X-Accel-Expires` takes precedence over all others.
        accel_expires: bool = true,
        /// The treatment of responses with `Set-Cookie`.
        set_cookie: SetCookie = SetCookie::Refuse,
        /// When requests with `Authorization`, and those with a client certificate, share cached
        /// responses.
        authorization: Sharing = Sharing::Declared,
        /// When requests with session cookies share cached responses.
        cookies: Sharing = Sharing::Declared,
        /// The session cookies; `*` at the end of a name matches anything. By default all cookies
        /// are.
        session_cookies: OneOrMore<NamePatternText> = OneOrMore(patterns(&["*"])),
        /// Cookies that are not session cookies, whatever `session_cookies` says. By default the
        /// cookies of analytics.
        harmless_cookies: OneOrMore<NamePatternText> = OneOrMore(patterns(HARMLESS)),
        /// Whether clients can request revalidation, by `Cache-Control` and `Pragma`.
        client_directives: ClientDirectives = ClientDirectives::Trusted,
        /// Networks of clients that can, with `client_directives = "trusted"`.
        trusted_clients: OneOrMore<NetworkText> = OneOrMore::default(),
        /// Whether errors other than 404 and 410 are stored if the origin gives a lifetime. Those
        /// in `ttl` always are.
        store_errors: bool = false,
        /// Whether partial responses (206) are stored and combined.
        store_parts: bool = true,
        /// Whether a page is not stored if its path ends like the path of an image or a style
        /// sheet, which protects from web cache deception.
        refuse_disguised: bool = true,
        /// Response fields with tags for purging.
        tag_fields: OneOrMore<FieldName> = OneOrMore(fields(&["Surrogate-Key", "xkey", "Cache-Tag"])),
        /// Whether these fields are removed from responses to clients.
        hide_tags: bool = true,
        /// The cache key.
        key: CacheKey,
        /// Cookies with which a request bypasses the cache: it is sent to the origin, and the
        /// response is not stored. `*` at the end of a name matches anything.
        bypass_cookies: OneOrMore<NamePatternText> = OneOrMore::default(),
        /// Request fields with which a request bypasses the cache.
        bypass_headers: OneOrMore<FieldName> = OneOrMore::default(),
        /// A condition for requests that bypass the cache: `when = "map.plan == \"gold\" or query.preview exists"`. The user is known.
        bypass_when: When,
        /// How long a request waits for the response to another one with the same key before it is
        /// sent to the origin itself, in seconds.
        lock_timeout: Seconds<0, YEAR> = Seconds::new(5),
        /// Whether responses have the field `Cache-Status` (RFC 9211).
        status_field: bool = true,
        /// The token for purging: with it in `Authorization: Bearer`, a request with the method
        /// `PURGE` purges its own URL, with `Purge-Prefix` all URLs that start with it, with
        /// `Purge-Tag` the responses with a tag. By default only `apus cache purge` does.
        purge_token: PurgeToken,
    }
}

keys! {
    /// The parts of the cache key, in addition to the path. A location's own table changes the keys
    /// that it gives.
    pub(crate) struct CacheKey {
        /// Whether `http` and `https` have different keys.
        scheme: bool = true,
        /// `$host` for the host of the request, or a fixed name for all hosts with the same
        /// responses.
        host: KeyHost = KeyHost::Requested,
        /// The part of the query: `true` all, `false` nothing, a list of names only these
        /// parameters, `{ except = [..] }` all but these. `*` at the end of a name matches
        /// anything.
        query: KeyQuery = KeyQuery::All,
        /// Whether parameters are sorted, so that their order does not matter.
        sort_query: bool = false,
        /// Request fields whose values are part of the key.
        headers: OneOrMore<FieldName> = OneOrMore::default(),
        /// Cookies whose values are part of the key.
        cookies: OneOrMore<Token> = OneOrMore::default(),
        /// Whether phones, tablets and desktops have different keys.
        device: bool = false,
    }
}

keys! {
    /// The heuristic freshness lifetime (RFC 9111 section 4.2.2): a part of the time since the last
    /// modification.
    pub(crate) struct Heuristic {
        /// The part, in percent.
        percent: Int<1, 100> = Int(10),
        /// The longest time, in seconds.
        max: Seconds<0, TEN_YEARS> = Seconds::new(86_400),
        /// Whether it is used for URLs with a query too.
        with_query: bool = false,
    }
}

choices! {
    /// A response field that is ignored.
    pub(crate) Ignorable: "what can be ignored" {
        /// `Cache-Control`, and what replaces it.
        CacheControl = "cache_control",
        /// `Expires`.
        Expires = "expires",
        /// `Vary`.
        Vary = "vary",
    }
}

choices! {
    /// The treatment of responses with `Set-Cookie`.
    pub(crate) SetCookie: "what becomes of Set-Cookie" {
        /// The response is not stored.
        Refuse = "refuse",
        /// The response is stored without it.
        Remove = "remove",
        /// The response is stored with it: every client gets the same cookie.
        Keep = "keep",
    }
}

choices! {
    /// When requests with credentials share cached responses.
    pub(crate) Sharing: "when responses are shared" {
        /// If the response explicitly allows it.
        Declared = "declared",
        /// Always.
        Always = "always",
    }
}

choices! {
    /// The clients whose directives are followed.
    pub(crate) ClientDirectives: "whose directives count" {
        /// None.
        Ignore = "ignore",
        /// Trusted clients.
        Trusted = "trusted",
        /// All clients.
        Honour = "honour",
    }
}

/// Cookies of analytics.
const HARMLESS: &[&str] = &[
    "_ga*", "_gid", "_gat*", "_gcl_*", "__utm*", "_fbp", "_fbc", "_pk_*", "_hj*", "_clck", "_clsk",
    "_uet*", "_ym_*",
];

fn fields(names: &[&str]) -> Vec<Setting<FieldName>> {
    let field = |name: &&str| not_given(FieldName((*name).to_owned()));
    names.iter().map(field).collect()
}

fn patterns(names: &[&str]) -> Vec<Setting<NamePatternText>> {
    let pattern = |name: &&str| not_given(NamePatternText((*name).to_owned()));
    names.iter().map(pattern).collect()
}
