//! The keys of PHP over FastCGI: `[sites.fastcgi]` and `[sites.locations.fastcgi]`.

use super::YEAR;
use super::cache::Cache;
use super::proxy::{Accel, HoldRequest, HoldResponse};
use super::upstream::{Queue, Retry};
use super::workers::Workers;
use crate::keys::keys;
use crate::string_type::php::{ScriptPath, VariableName, VariableValue};
use crate::string_type::{FieldName, PathPattern};
use crate::value::{Int, Map, OneOrMore, Seconds, Switch, Text, Time};

keys! {
    /// How PHP is asked over FastCGI, and for what. A location's own table changes the keys that it
    /// gives; the others are as in the site's.
    pub(crate) struct Fastcgi {
        /// The program that answers where there is neither a file nor a program, for URLs without the
        /// names of programs. By default as the `preset` has it, else none.
        front_controller: ScriptPath,
        /// Paths below the root at which no program is run, as folders for uploads, besides those of the
        /// `preset`: `["/uploads/**"]`.
        no_php: OneOrMore<PathPattern> = OneOrMore::default(),
        /// Paths below the root at which there is nothing for anybody, neither file nor program, besides
        /// those of the `preset`.
        protected: OneOrMore<PathPattern> = OneOrMore::default(),
        /// The root as PHP sees it, if that is another: PHP is in a chroot, a container, or on another
        /// machine. Without `root`, programs are not looked for here, and their names alone decide.
        script_root: Text,
        /// Whether PHP is told where a root that is a symbolic link leads, so that a release takes effect
        /// when the link is switched.
        resolve_root: bool = true,
        /// Variables that programs are told, in place of those of the same name; may hold variables as
        /// `$host`. An empty one is not told.
        params: Map<VariableName, VariableValue> = Map::default(),
        /// Whether programs are told of fields whose names hold an underscore. They become the same
        /// variable as those with a hyphen.
        underscores: bool = false,
        /// Fields of answers that are not sent on, as `X-Powered-By`.
        hide: OneOrMore<FieldName> = OneOrMore::default(),
        /// The most requests that PHP works on at once, over all workers of this server; others wait in
        /// the `queue`. As many connections are kept.
        pool_size: Int<1, 100_000> = Int(64),
        /// How long a connection is kept that carries no request, in seconds. 0: none is kept.
        idle_timeout: Seconds<0, YEAR> = Seconds::new(30),
        /// Where requests wait while `pool_size` others are worked on.
        queue: Queue,
        /// What is tried again. A request that a program may have seen is tried again only if its method
        /// is idempotent.
        retry: Retry,
        /// How long connecting may take, in seconds.
        connect_timeout: Time<YEAR> = Time::new(5),
        /// How long the head of a response may take after the request was sent, in seconds.
        first_byte_timeout: Time<YEAR> = Time::new(60),
        /// How long a program may pause while it sends a response, in seconds.
        read_timeout: Time<YEAR> = Time::new(60),
        /// How long PHP may take nothing of a request, in seconds.
        write_timeout: Time<YEAR> = Time::new(60),
        /// Whether the content of a request is taken in before PHP is asked, so that a slow client does not
        /// occupy one of its processes. Content of unknown length always is.
        hold_request: Switch<HoldRequest> = Switch::On,
        /// Whether the content of an answer is taken in faster than the client reads, so that the process
        /// is free sooner.
        hold_response: Switch<HoldResponse> = Switch::On,
        /// Whether the application stays in memory, and how: workers answer in place of programs that are
        /// run anew for each request.
        workers: Switch<Workers> = Switch::Off,
        /// Whether error responses of programs get the error pages of the site.
        intercept_errors: bool = false,
        /// Whether programs may have the site answer in their place, by a path in `X-Accel-Redirect` or a
        /// file in `X-Sendfile`.
        accel: Switch<Accel> = Switch::Off,
        /// Whether answers are stored and sent again, and how. Requests with a cookie of a session or of
        /// somebody who is logged in go past it, as the `preset` knows them, without one those of all
        /// presets.
        cache: Switch<Cache> = Switch::Off,
        /// Whether answers tell in `X-FastCGI-Cache` what the cache did: `HIT`, `MISS`, `BYPASS`,
        /// `EXPIRED`, `STALE` or `REVALIDATED`.
        cache_field: bool = false,
    }
}
