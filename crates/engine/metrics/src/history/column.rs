//! The numbers of a record.

/// What is stored of a column, and what the sum of two records has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    /// How often something happened: the sum.
    Sum,
    /// Time in microseconds: the sum.
    Time,
    /// What there was at the end: the largest.
    Largest,
}

macro_rules! columns {
    ($($column:ident $kind:ident $name:literal $help:literal)*) => {
        /// A number of a record of the history.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum HistoryColumn {
            $(#[doc = $help] $column,)*
        }

        impl HistoryColumn {
            /// All columns, in the order of the file. New ones come last: those who know fewer have them as unknown.
            pub const ALL: &'static [Self] = &[$(Self::$column,)*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$column => $name,)*
                }
            }

            /// What it is.
            pub const fn help(self) -> &'static str {
                match self {
                    $(Self::$column => $help,)*
                }
            }

            pub(super) const fn kind(self) -> ColumnKind {
                match self {
                    $(Self::$column => ColumnKind::$kind,)*
                }
            }
        }
    };
}

columns! {
    Requests Sum "requests" "Requests whose heads were read."
    WithoutResponse Sum "requests_none" "Requests of sites that ended without a response, because the client left."
    Informational Sum "requests_1xx" "Requests of sites by the class of the status of their response."
    Successful Sum "requests_2xx" "The same for 2xx."
    Redirected Sum "requests_3xx" "The same for 3xx."
    ClientErrors Sum "requests_4xx" "The same for 4xx."
    ServerErrors Sum "requests_5xx" "The same for 5xx."
    BadRequests Sum "bad_requests" "Requests that were refused because they broke the protocol or a limit of size."
    ReceivedBytes Sum "received_bytes" "Bytes that were read, behind TLS."
    SentBytes Sum "sent_bytes" "Bytes that were written, before TLS."
    Accepted Sum "connections_accepted" "Connections that were accepted."
    RefusedByLimit Sum "connections_refused" "Connections that were closed at once, beyond a limit."
    RefusedByBan Sum "connections_banned" "Connections that were closed because their clients are banned."
    RefusedForGlitches Sum "connections_refused_for_glitches" "Connections that were closed at once because their clients do much wrong."
    Evicted Sum "connections_evicted" "Idle connections that were closed for new ones."
    AcceptFailures Sum "accept_failures" "Connections that could not be accepted for want of descriptors or memory."
    Handshakes Sum "handshakes" "TLS handshakes."
    HandshakeFailures Sum "handshake_failures" "TLS handshakes that failed."
    ClientTimeouts Sum "client_timeouts" "Connections that were closed because the client was too slow."
    Floods Sum "floods_stopped" "Connections that were closed because of a flood."
    Panics Sum "panics" "Handlers that panicked."
    BrokenResponses Sum "broken_responses" "Responses that were cut off because their source failed."
    CacheHits Sum "cache_hits" "Responses from a cache."
    CacheStale Sum "cache_stale" "Stale responses from a cache."
    CacheRevalidated Sum "cache_revalidated" "Responses from a cache that the origin confirmed."
    CacheExpired Sum "cache_expired" "Responses that were in a cache, and had to be fetched again."
    CacheMisses Sum "cache_misses" "Responses that were in no cache."
    CacheBypassed Sum "cache_bypassed" "Responses that went past a cache."
    UpstreamRequests Sum "upstream_requests" "Requests to nodes of upstream groups."
    UpstreamFailures Sum "upstream_failures" "Those that failed."
    LimitRefusals Sum "refused_by_limits" "Requests that limits refused."
    BanRefusals Sum "refused_by_bans" "Requests of banned clients that came over connections of others, such as proxies."
    RuleMatches Sum "rule_matches" "How often the condition of a rule held, also in dry runs."
    LogLinesLost Sum "log_lines_lost" "Lines of access logs that were lost because the disk is too slow or full."
    CpuTime Time "cpu_seconds" "CPU time of the process."
    Connections Largest "connections" "Open connections."
    InFlight Largest "requests_in_flight" "Requests of sites in progress."
    Memory Largest "memory_bytes" "Resident memory of the process."
    ResponseMemory Largest "response_memory_bytes" "Memory that responses use beyond the piece that each is sending."
    NodesDown Largest "upstream_nodes_down" "Nodes of upstream groups that get no requests."
}
