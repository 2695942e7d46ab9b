//! The keys of PHP over FastCGI: `[sites.fastcgi]` and `[sites.locations.fastcgi]`.

use super::YEAR;
use super::cache::Cache;
use super::proxy::{Accel, HoldRequest, HoldResponse, PathForm};
use super::upstream::{Queue, Retry};
use super::workers::Workers;
use crate::keys::keys;
use crate::size::Kilobytes;
use crate::string_type::php::{ScriptPath, VariableName, VariableValue};
use crate::string_type::{FieldName, PathPattern};
use crate::value::{Int, Map, OneOrMore, Seconds, Switch, Text, Time};

keys! {
    /// PHP over FastCGI. A location's own table changes the keys that it gives; the others are as
    /// in the site's.
    pub(crate) struct Fastcgi {
        /// The front controller: the script for paths with neither a file nor a script. By default
        /// the `preset` decides, and without a preset there is none.
        front_controller: ScriptPath,
        /// Paths below the root at which no script is run, as upload folders, in addition to the
        /// paths of the `preset`: `["/uploads/**"]`.
        no_php: OneOrMore<PathPattern> = OneOrMore::default(),
        /// Paths below the root that are never served, in addition to the paths of the `preset`.
        protected: OneOrMore<PathPattern> = OneOrMore::default(),
        /// The root as PHP sees it, if that is another: PHP is in a chroot, a container, or on
        /// another machine. Without `root`, scripts are not looked up here, and their names alone
        /// decide.
        script_root: Text,
        /// Whether PHP gets the resolved path of a root that is a symbolic link, so that a release
        /// takes effect when the link is switched.
        resolve_root: bool = true,
        /// FastCGI parameters, which replace parameters of the same name; may hold variables as
        /// `$host`. An empty one is not sent.
        params: Map<VariableName, VariableValue> = Map::default(),
        /// Whether scripts get paths with `%2F`: `raw` passes them on in `REQUEST_URI`, as applications
        /// need that have slashes in names, and a slash for all rules for paths; with `normalized`
        /// they get 400. In the same way dot segments get 400, or are resolved.
        path: PathForm = PathForm::Normalized,
        /// Whether scripts get fields whose names have an underscore. They map to the same variable
        /// as those with a hyphen.
        underscores: bool = false,
        /// Response fields that are removed, as `X-Powered-By`.
        hide: OneOrMore<FieldName> = OneOrMore::default(),
        /// The most concurrent requests to PHP, over all workers of this server; others wait in the
        /// `queue`. As many connections are kept open.
        pool_size: Int<1, 100_000> = Int(64),
        /// How long an idle connection is kept, in seconds. 0: none is kept.
        idle_timeout: Seconds<0, YEAR> = Seconds::new(30),
        /// The queue of requests while `pool_size` others are in progress.
        queue: Queue,
        /// The retries. A request that a script may have seen is retried only if its method is
        /// idempotent.
        retry: Retry,
        /// How long connecting may take, in seconds.
        connect_timeout: Time<YEAR> = Time::new(5),
        /// How long the head of a response may take after the request was sent, in seconds.
        first_byte_timeout: Time<YEAR> = Time::new(60),
        /// How long a script may pause while it sends a response, in seconds.
        read_timeout: Time<YEAR> = Time::new(60),
        /// How long PHP may read nothing of a request, in seconds.
        write_timeout: Time<YEAR> = Time::new(60),
        /// The largest head of a response, in KB. A larger one is a 502.
        response_header_size: Kilobytes<1, 1024> = Kilobytes::new(64),
        /// Field lines in a head of a response. More are a 502.
        response_header_fields: Int<1, 10_000> = Int(256),
        /// Whether a request body is buffered before PHP gets the request, so that a slow client
        /// does not occupy one of its processes. A body of unknown length always is.
        hold_request: Switch<HoldRequest> = Switch::On,
        /// Whether a response body is read faster than the client reads it, so that the process is
        /// free sooner.
        hold_response: Switch<HoldResponse> = Switch::On,
        /// Whether resident workers with the application in memory handle requests, and how.
        workers: Switch<Workers> = Switch::Off,
        /// Whether error responses of scripts are replaced by the error pages of the site.
        intercept_errors: bool = false,
        /// Whether scripts may redirect internally, by a path in `X-Accel-Redirect` or a file in
        /// `X-Sendfile`. Otherwise such a response is a 500, unless it has a body.
        accel: Switch<Accel> = Switch::Off,
        /// Whether responses are cached, and how. Requests with a session cookie bypass the cache:
        /// with the cookies that the `preset` knows, without a preset the cookies of all presets.
        cache: Switch<Cache> = Switch::Off,
        /// Whether responses have the field `X-FastCGI-Cache`: `HIT`, `MISS`, `BYPASS`, `EXPIRED`,
        /// `STALE` or `REVALIDATED`.
        cache_field: bool = false,
    }
}
