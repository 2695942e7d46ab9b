//! A shared HTTP cache (RFC 9111).
//!
//! [`policy`] decides what may be stored and sent (RFC 9111), without I/O and without a clock.
//! [`store`] keeps stored responses in memory and on disk. [`service`] is the cache in front of
//! another service.
//!
//! # A request
//!
//! 1. [`service`] looks the request up (`cached`, `lookup`, [`policy`] `reuse`): it sends a stored response if it is fresh,
//!    usually without a lock, or stale while it is revalidated (`stale-while-revalidate`). Of several requests for a
//!    response that is not stored, one goes to the origin and the others read the same object. A request bypasses the
//!    cache if its response depends on more than the target that the client sent (`bypass`).
//! 2. `fetch` stores the response if it may be stored (`policy::storing`), while it is sent. Clients read from the
//!    stored object, not from the origin.
//! 3. `prepared_response` and `ranges` evaluate preconditions and ranges of stored objects.
//!
//! [`policy`] has the rules of RFC 9111 without I/O: `storing` with the windows of `stale-while-revalidate` and
//! `stale-if-error`, `freshness`, `reuse`, `vary`, `invalidation`. [`store`] has objects in memory and on disk, their
//! eviction, and purges (`purge`); `service::purge` purges by requests, and `crates/server/server/src/cache_admin.rs`
//! by the control socket.
//!
//! # Decisions
//!
//! - **All readers of a cached response read the stored object**, the client that caused the fetch too. So a slow or
//!   lost client delays nobody else, and the same code serves hits, misses and collapsed requests.
//! - **The store is shared, and each worker has a small cache in front of it** (`worker_cache`). Objects are stored
//!   once. Each worker keeps prepared responses of the objects that it serves most; two atomic loads check whether they
//!   are still valid.
//! - **Large bodies in memory are sealed memfd bodies** (apus-memfd), which `sendfile` sends without a copy.
//! - **A body on disk is verified by its checksums once a minute**, and after each change of its file, for all clients
//!   that read it, not once for each of them.
//!
//! # Tests
//!
//! `tests/it/policy`: rules, named after the sections of RFC 9111. `tests/it/store` and `tests/it/service`: the store
//! and whole requests. This crate does not need the engine.

#![forbid(unsafe_code)]

pub mod policy;
pub mod service;
pub mod store;
