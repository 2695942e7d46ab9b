//! The keys of caches.
//!
//! `[sites.cache]` and `[sites.locations.cache]` say what is stored and sent, `[global.cache]`
//! where it is kept.

use super::{YEAR, not_given};
use crate::keys::{choices, keys};
use crate::source::Setting;
use crate::string_type::caching::{KeyHost, KeyQuery, Lifetimes, NamePatternText, PurgeToken};
use crate::string_type::origin::Token;
use crate::string_type::{FieldName, NetworkText};
use crate::value::{FilePath, Int, Kilobytes, Megabytes, OneOrMore, Seconds, Switch};

const TEN_YEARS: u64 = 10 * YEAR;

keys! {
    /// Where stored answers of all sites are kept. Changes take effect with a restart.
    pub(crate) struct CacheStore {
        /// Memory for stored answers, in MB.
        memory_size: Megabytes<1, 100_000_000> = Megabytes::new(256),
        /// The largest answer that is kept in memory, in MB; at most an eighth of `memory_size`.
        memory_object_size: Megabytes<0, 100_000_000> = Megabytes::new(1),
        /// The most answers below one key, told apart by `Vary`. A further one takes the place of
        /// another.
        max_variants: Int<1, 10_000> = Int(32),
        /// What is held in memory of an answer that is being fetched for several clients and cannot be
        /// stored, in KB.
        shared_window: Kilobytes<64, 1_000_000> = Kilobytes::new(1024),
        /// How long a slow reader of such an answer may hold up the others before it is cut off, in
        /// seconds.
        shared_lag: Seconds<0, YEAR> = Seconds::new(5),
        /// The folder for answers on disk, which is made if need be. It belongs to one server. By
        /// default there are none on disk.
        dir: FilePath,
        /// Disk for stored answers, in MB. Must be there with `dir`.
        size: Megabytes<1, 1_000_000_000_000>,
        /// The largest answer that is kept on disk, in MB; at most half of `size`, which it also is by
        /// default.
        object_size: Megabytes<0, 1_000_000_000_000>,
        /// What is left free of the file system, in MB: stored answers go before it has less.
        min_free: Megabytes<0, 1_000_000_000_000> = Megabytes::new(0),
        /// Threads that read and write files of answers.
        threads: Int<1, 256> = Int(4),
        /// What may wait in memory of one answer to be written to disk, in KB.
        write_buffer: Kilobytes<64, 1_000_000> = Kilobytes::new(2048),
        /// Files of answers that are kept open.
        open_files: Int<1, 1_000_000> = Int(2048),
    }
}

keys! {
    /// What is stored of the answers of origins, and for how long. What origins say decides (RFC 9111),
    /// unless a key says otherwise. A location's own table changes the keys that it gives; the others
    /// are as in the site's.
    pub(crate) struct Cache {
        /// How long answers are fresh whose origin does not say: a time for 200, 206, 301 and 308,
        /// or a table from statuses and classes of them to times: `{ "200" = 300, "404" = 10, "5xx" = 1 }`.
        ttl: Lifetimes = Lifetimes::default(),
        /// Whether `ttl` counts even if the origin says how long. `private` and `no-store` still hold.
        ttl_overrides: bool = false,
        /// The longest time that any answer is fresh, whatever its origin says, in seconds.
        max_ttl: Seconds<0, TEN_YEARS>,
        /// Whether the time is guessed from `Last-Modified` if nobody says it.
        heuristic: Switch<Heuristic> = Switch::On,
        /// How long stale answers are sent while they are refreshed, in seconds, if the origin does not
        /// say and does not forbid it.
        stale_while_revalidate: Seconds<0, TEN_YEARS> = Seconds::new(0),
        /// How long stale answers are sent if the origin fails, in seconds, likewise.
        stale_if_error: Seconds<0, TEN_YEARS> = Seconds::new(0),
        /// The largest answer that is stored, in MB.
        max_size: Megabytes<0, 1_000_000_000> = Megabytes::new(1024),
        /// How often something has to be asked for before it is stored.
        minimum_uses: Int<1, 1_000_000> = Int(1),
        /// What of answers does not count: `cache_control` (and with it `private` and `no-store`),
        /// `expires`, `vary`.
        ignore: OneOrMore<Ignorable> = OneOrMore::default(),
        /// Fields that stand for `Cache-Control` to this cache (RFC 9213). The first that an answer has
        /// replaces `Cache-Control` and `Expires`.
        targeted: OneOrMore<FieldName> = OneOrMore(fields(&["CDN-Cache-Control"])),
        /// Whether `X-Accel-Expires` counts, before all others.
        accel_expires: bool = true,
        /// What becomes of answers with `Set-Cookie`.
        set_cookie: SetCookie = SetCookie::Refuse,
        /// When requests with `Authorization`, and those of clients that showed a certificate, share stored answers.
        authorization: Sharing = Sharing::Declared,
        /// When requests with session cookies share stored answers.
        cookies: Sharing = Sharing::Declared,
        /// The cookies that are of a session; `*` at the end of a name stands for any rest. By default
        /// all are.
        session_cookies: OneOrMore<NamePatternText> = OneOrMore(patterns(&["*"])),
        /// The cookies that are not, whatever `session_cookies` says. By default those of statistics.
        harmless_cookies: OneOrMore<NamePatternText> = OneOrMore(patterns(HARMLESS)),
        /// Whether clients can have more than what is stored, by `Cache-Control` and `Pragma` in a
        /// request.
        client_directives: ClientDirectives = ClientDirectives::Trusted,
        /// Networks of clients that can, with `client_directives = "trusted"`.
        trusted_clients: OneOrMore<NetworkText> = OneOrMore::default(),
        /// Whether errors other than 404 and 410 are stored if the origin says for how long. Those in
        /// `ttl` always are.
        store_errors: bool = false,
        /// Whether parts of answers (206) are stored, and put together.
        store_parts: bool = true,
        /// Whether a page is not stored whose address ends like that of an image or a style sheet, as
        /// somebody may have made that up to read what is another's.
        refuse_disguised: bool = true,
        /// Fields of answers that hold tags to purge by.
        tag_fields: OneOrMore<FieldName> = OneOrMore(fields(&["Surrogate-Key", "xkey", "Cache-Tag"])),
        /// Whether clients do not see these fields.
        hide_tags: bool = true,
        /// What tells stored answers apart.
        key: CacheKey,
        /// Cookies with which a request goes past the cache: it is answered by the origin, and the answer
        /// not stored. `*` at the end of a name stands for any rest.
        bypass_cookies: OneOrMore<NamePatternText> = OneOrMore::default(),
        /// Fields with which a request goes past the cache.
        bypass_headers: OneOrMore<FieldName> = OneOrMore::default(),
        /// How long a request waits for the answer to another for the same, before it goes to the origin
        /// itself, in seconds.
        lock_timeout: Seconds<0, YEAR> = Seconds::new(5),
        /// Whether answers tell in `Cache-Status` what the cache did (RFC 9211).
        status_field: bool = true,
        /// With it in `Authorization: Bearer`, a request with the method `PURGE` takes out what is stored:
        /// its own address, with `Purge-Prefix` all that begins with it, with `Purge-Tag` what has a tag.
        /// By default only `apus cache purge` does.
        purge_token: PurgeToken,
    }
}

keys! {
    /// What tells stored answers apart, beside the path, which always does. A location's own table
    /// changes the keys that it gives.
    pub(crate) struct CacheKey {
        /// Whether `http` and `https` are told apart.
        scheme: bool = true,
        /// `$host` for the host of the request, or a name for all hosts that have the same content.
        host: KeyHost = KeyHost::Requested,
        /// What of the query counts: `true` all, `false` nothing, a list of names only these parameters,
        /// `{ except = [..] }` all but these. `*` at the end of a name stands for any rest.
        query: KeyQuery = KeyQuery::All,
        /// Whether parameters count in any order.
        sort_query: bool = false,
        /// Fields of requests whose values count.
        headers: OneOrMore<FieldName> = OneOrMore::default(),
        /// Cookies whose values count.
        cookies: OneOrMore<Token> = OneOrMore::default(),
        /// Whether phones, tablets and desktops are told apart.
        device: bool = false,
    }
}

keys! {
    /// How long answers are fresh of which nobody says it: a part of the time since they last changed.
    pub(crate) struct Heuristic {
        /// The part, in percent.
        percent: Int<1, 100> = Int(10),
        /// The longest time, in seconds.
        max: Seconds<0, TEN_YEARS> = Seconds::new(86_400),
        /// Whether it is guessed for addresses with a query too.
        with_query: bool = false,
    }
}

choices! {
    /// What of answers does not count.
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
    /// What becomes of answers with `Set-Cookie`.
    pub(crate) SetCookie: "what becomes of Set-Cookie" {
        /// They are not stored.
        Refuse = "refuse",
        /// They are stored without it.
        Remove = "remove",
        /// They are stored with it: every client gets the same cookie.
        Keep = "keep",
    }
}

choices! {
    /// When requests with credentials share stored answers.
    pub(crate) Sharing: "when answers are shared" {
        /// If the origin says that they may be.
        Declared = "declared",
        /// Always.
        Always = "always",
    }
}

choices! {
    /// Whose directives count.
    pub(crate) ClientDirectives: "whose directives count" {
        /// Nobody's.
        Ignore = "ignore",
        /// Those of trusted clients.
        Trusted = "trusted",
        /// Everybody's.
        Honour = "honour",
    }
}

/// Cookies of statistics.
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
