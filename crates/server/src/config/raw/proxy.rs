//! The keys of the handler `reverse_proxy`: `[sites.proxy]` and `[sites.locations.proxy]`.

use super::YEAR;
use super::upstream::SameSite;
use crate::config::keys::keys;
use crate::config::value::{FilePath, Kilobytes, Map, Megabytes, Several, Switch, Text, Time};
use crate::config::word::origin::{
    CookiePath, Domain, MediaRange, NewDomain, Passage, ProxyHost, UriStart,
};
use crate::config::word::{Content, FieldName, Uri};

keys! {
    /// What is done with requests and answers on their way to origins and back. A location's own table
    /// changes the keys that it gives; the others are as in the site's.
    pub(in crate::config) struct Proxy {
        /// The host that origins are asked for: `$http_host` for the one that the client sent,
        /// `$proxy_host` for the one in a URL as `upstream`, or a name.
        host: ProxyHost = ProxyHost::Client,
        /// Whether origins are told of the client by `X-Forwarded-For`, `X-Forwarded-Proto`,
        /// `X-Forwarded-Host`, `X-Forwarded-Port` and `X-Real-IP`. What clients send of these themselves is
        /// removed, but for that of `trusted_proxies`.
        x_forwarded: bool = true,
        /// Whether origins are told of the client by `Forwarded`.
        forwarded: bool = false,
        /// Whether `Via` is sent to origins.
        via: bool = true,
        /// Whether fields of requests are sent on whose names hold an underscore. Many applications take
        /// them for those with a hyphen.
        underscores: bool = false,
        /// Fields of answers that are not sent on.
        hide: Several<FieldName> = Several::default(),
        /// Redirects in the terms of the site: from what `Location` starts with to what stands there
        /// instead. Redirects to the origin's own host need no such rule.
        redirects: Map<UriStart, UriStart> = Map::default(),
        /// How cookies that origins set are changed.
        cookies: Cookies,
        /// Texts of answers that are replaced, from one to another, if they are not compressed.
        replace: Map<Passage, Content> = Map::default(),
        /// The media types of answers in which they are. `"*"`: all. By default `text/html`.
        replace_types: Several<MediaRange> = Several::default(),
        /// Whether the content of a request is taken in before an origin is asked, so that a slow client
        /// does not occupy it.
        hold_request: Switch<HoldRequest> = Switch::Off,
        /// Whether the content of an answer is taken in faster than the client reads, so that the origin
        /// is free sooner.
        hold_response: Switch<HoldResponse> = Switch::Off,
        /// How long a tunnel, as of WebSocket, may carry nothing, in seconds.
        tunnel_timeout: Time<YEAR> = Time::new(3600),
        /// Whether error responses of origins get the error pages of the site.
        intercept_errors: bool = false,
        /// Whether origins may have the site answer in their place, by a path in `X-Accel-Redirect` or a
        /// file in `X-Sendfile`.
        accel: Switch<Accel> = Switch::Off,
    }
}

keys! {
    /// How cookies that origins set are changed.
    pub(in crate::config) struct Cookies {
        /// From a domain to another. An empty one leaves the attribute out.
        domains: Map<Domain, NewDomain> = Map::default(),
        /// From what a path starts with to what it starts with then.
        paths: Map<CookiePath, CookiePath> = Map::default(),
        /// Whether `Secure` is added.
        secure: bool = false,
        /// Whether `HttpOnly` is added.
        http_only: bool = false,
        /// The `SameSite` that is set.
        same_site: SameSite,
    }
}

keys! {
    /// How the content of requests is taken in.
    pub(in crate::config) struct HoldRequest {
        /// What is held in memory, in KB; more goes into a file.
        memory: Kilobytes<0, 1_000_000> = Kilobytes::new(64),
        /// What is held in a file, in MB; what is still more is passed on as it comes.
        disk: Megabytes<0, 1_000_000_000> = Megabytes::new(1024),
        /// The folder of the files, which have no name and go when they are closed. By default
        /// `/var/tmp`.
        folder: FilePath,
    }
}

keys! {
    /// How the content of answers is taken in.
    pub(in crate::config) struct HoldResponse {
        /// How far ahead of the client, in KB.
        memory: Kilobytes<1, 1_000_000> = Kilobytes::new(256),
    }
}

keys! {
    /// What origins may have the site answer in their place.
    pub(in crate::config) struct Accel {
        /// From what a file's name in `X-Sendfile` starts with to what its path in the site starts with.
        /// A file that fits none is not sent.
        files: Map<Text, Uri> = Map::default(),
    }
}
