//! Static files as a service: lookup below a root, conditional and range requests, compressed
//! variants, and listings.
//!
//! [`Files`] is the configuration; each worker builds a [`FilesService`] from it. Responses are
//! cached in memory in wire form, and checked against the file system at most once a second.
//!
//! # Modules
//!
//! - [`tree`], `path_resolver`: the lookup below a root, with its rules for symbolic links and hidden files.
//!   `try_files`: the paths that are tried.
//! - `service`, `representation`: conditional and range requests (RFC 9110 sections 13 and 14). `variants`: compressed
//!   forms beside a file or made once. `entry`, `changes`: what is kept in memory, and when it is looked at again.
//!   `listing`, `page`: the pages of folders.
//!
//! # Features
//!
//! `globs` is for rules by patterns of paths: `Files::protected`, `Files::cache_control`.
//!
//! # Decisions
//!
//! - **What a worker knows about files is its own.** Nothing needs a lock, and each core has its files in its own
//!   cache. Compressed variants, which take time to make, are made once for all workers.
//! - **Files of up to 512 KiB are kept in memory, as complete responses in wire form**; longer ones are sent with
//!   `sendfile`.
//!
//! # Tests
//!
//! `tests/it/serving`, by topic.

#![forbid(unsafe_code)]

mod body;
mod changes;
mod entry;
#[cfg(not(feature = "globs"))]
mod glob_off;
mod listing;
mod page;
mod path_resolver;
mod representation;
mod service;
pub mod tree;
mod try_files;
mod variants;

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

pub use apus_compress::Compression;
use apus_http::{HeaderName, HeaderValue, Headers, Service, ServiceFactory};
use apus_transport::coarse_now;

#[cfg(feature = "globs")]
pub use apus_patterns::{Glob, InvalidGlob};
use changes::ChangeCount;
#[cfg(not(feature = "globs"))]
use glob_off::Glob;
pub use service::FilesOutcome;
pub use service::FilesService;
pub use tree::Symlinks;
pub use try_files::{InvalidTryFiles, RewriteUri, TryFiles};
pub use variants::VariantStore;

/// A tree of static files, as a service.
///
/// Files are sent with validators, ranges and compressed variants; folders with their index or a
/// listing. Paths outside of the root, hidden files (except below `/.well-known/`) and the source
/// of PHP programs are not found.
///
/// Text is compressed with brotli, zstd and gzip in the background, once for all workers, while the
/// first clients get it uncompressed. Files beside a file of any type (`.br`, `.zst`, `.gz`) that are
/// not older are sent instead. Text of more than 4 MB and up to 32 MB is compressed while it is sent, as long as
/// there is memory for compressors ([`ResponseMemory`](apus_http::ResponseMemory)); range requests
/// for it get parts of the uncompressed file.
///
/// A file without compressed variants, such as an image, is sent uncompressed whatever the client
/// accepts. For a file with variants, a client that accepts none of them, not even `identity`, gets
/// 406 (RFC 9110 section 12.5.3). So does a client that refuses `identity` while there is no memory
/// for a compressor or too much to compress; other clients get the uncompressed file then. An image
/// in SVG that is stored in gzip (`.svgz`) is sent in that coding, and decoded for clients that do
/// not accept it.
///
/// A file is compared with the file system at most once a second. Until then, a worker sends what it
/// has in memory, also if the file was changed or deleted; what one worker finds out reaches the
/// others with their next request.
///
/// The entity tag of a file of up to 512 KB is made of its bytes. The tag of a larger one is made
/// of its length, its times and its inode, so that it changes with each version, and is another one
/// on each machine and for each copy.
///
/// Private files of the process, such as keys of certificates and logs, are not found.
#[derive(Clone)]
pub struct Files {
    options: FilesOptions,
    cache_bytes: u64,
    clock: fn() -> Instant,
    fallback: Option<Arc<dyn ServiceFactory>>,
    /// Shared by the services of all workers.
    variants: Arc<VariantStore>,
    changes: ChangeCount,
}

#[derive(Clone)]
struct FilesOptions {
    root: PathBuf,
    symlinks: Symlinks,
    prefix: Vec<u8>,
    index: Vec<String>,
    listing: bool,
    try_files: Option<TryFiles>,
    spa: Option<String>,
    cache_control: Vec<(Glob, HeaderValue)>,
    media_types: HashMap<String, String>,
    charset: Option<String>,
    hidden_files: bool,
    encoded_slashes: bool,
    source_extensions: Vec<String>,
    /// Whether the fallback runs programs.
    runs_programs: bool,
    /// Whether there are programs among the files, whichever service runs them.
    has_programs: bool,
    protected: Vec<Glob>,
    headers: Headers,
    compression: Compression,
    precompressed: bool,
}

const CACHE_BYTES: u64 = 64 << 20;

impl Files {
    /// The files below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            options: FilesOptions {
                root: root.into(),
                symlinks: Symlinks::default(),
                prefix: Vec::new(),
                index: vec!["index.html".into()],
                listing: false,
                try_files: None,
                spa: None,
                cache_control: Vec::new(),
                media_types: HashMap::new(),
                charset: Some("utf-8".into()),
                hidden_files: false,
                encoded_slashes: false,
                source_extensions: [
                    "php", "phtml", "phar", "phps", "pht", "php3", "php4", "php5", "php7", "php8",
                ]
                .map(String::from)
                .into(),
                runs_programs: false,
                has_programs: false,
                protected: Vec::new(),
                headers: Headers::new(),
                compression: Compression::default(),
                precompressed: true,
            },
            cache_bytes: CACHE_BYTES,
            clock: coarse_now,
            fallback: None,
            variants: Arc::new(VariantStore::new(CACHE_BYTES)),
            changes: ChangeCount::default(),
        }
    }

    /// Removes this prefix from the path of each request before the root is prepended, as `alias`
    /// in nginx does. Only whole segments count: `/a` is no prefix of `/ab`. The prefix is in
    /// normal form, that is not percent-encoded; other paths are not found.
    #[must_use]
    pub fn strip_prefix(mut self, prefix: &str) -> Self {
        self.options.prefix = prefix.trim_end_matches('/').into();
        self
    }

    /// Whether the fallback runs programs.
    pub fn runs_programs(&self) -> bool {
        self.options.runs_programs
    }

    /// The prefix of [`Files::strip_prefix`].
    pub fn prefix(&self) -> &[u8] {
        &self.options.prefix
    }

    /// The names of index files, in order of preference. Default: `index.html`.
    #[must_use]
    pub fn index<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.options.index = names.into_iter().map(Into::into).collect();
        self
    }

    /// Whether folders without an index are listed. Default: no.
    #[must_use]
    pub fn listing(mut self, listing: bool) -> Self {
        self.options.listing = listing;
        self
    }

    /// The paths to try for a request. If the last parameter is a path, a site continues with it in
    /// its locations; elsewhere it is a file below the root.
    #[must_use]
    pub fn try_files(mut self, list: TryFiles) -> Self {
        self.options.try_files = Some(list);
        self
    }

    /// The file, by its path below the root, that is sent for every path without a file, as
    /// single-page applications need it, if the request is for a page: by `Sec-Fetch-Dest`, or
    /// because `Accept` names HTML. Requests for scripts, images and data stay 404. For clients that
    /// say neither, paths that end like the name of a file of a known type other than HTML do.
    #[must_use]
    pub fn spa(mut self, page: impl Into<String>) -> Self {
        self.options.spa = Some(page.into());
        self
    }

    /// The service for requests of any method for which there is no file. A path as last parameter
    /// of [`Files::try_files`] goes there too, with path and query replaced.
    #[must_use]
    pub fn fallback(mut self, service: Arc<dyn ServiceFactory>) -> Self {
        self.fallback = Some(service);
        self
    }

    /// As [`Files::fallback`], with a service that runs programs, which are files too: it also gets
    /// requests for a path that ends like the name of a program, and for a folder whose first
    /// existing index file is one. That service decides which of them it runs.
    #[must_use]
    pub fn programs(self, service: Arc<dyn ServiceFactory>) -> Self {
        let mut files = self.fallback(service).beside_programs();
        files.options.runs_programs = true;
        files
    }

    /// Declares that there are programs among the files, whichever service runs them: backup copies
    /// of programs and include files are not found then, such as `x.php.bak`, `x.old` and `x.inc`.
    #[must_use]
    pub fn beside_programs(mut self) -> Self {
        self.options.has_programs = true;
        self
    }

    /// Paths below the root that are never found.
    #[cfg(feature = "globs")]
    #[must_use]
    pub fn protected(mut self, paths: impl IntoIterator<Item = Glob>) -> Self {
        self.options.protected = paths.into_iter().collect();
        self
    }

    /// `Cache-Control` by the path of the file below the root; the first matching pattern counts.
    #[cfg(feature = "globs")]
    #[must_use]
    pub fn cache_control(mut self, rules: impl IntoIterator<Item = (Glob, HeaderValue)>) -> Self {
        self.options.cache_control = rules.into_iter().collect();
        self
    }

    /// Media types by extension (lower case, without its dot), which are looked up before the built-in table.
    #[must_use]
    pub fn media_types<E: Into<String>, T: Into<String>>(
        mut self,
        types: impl IntoIterator<Item = (E, T)>,
    ) -> Self {
        self.options.media_types = types
            .into_iter()
            .map(|(extension, media_type)| (extension.into(), media_type.into()))
            .collect();
        self
    }

    /// The charset named for text; `None` to name none. Default: `utf-8`.
    #[must_use]
    pub fn charset(mut self, charset: Option<String>) -> Self {
        self.options.charset = charset;
        self
    }

    /// Whether names that start with a dot are served. Default: only `/.well-known/`.
    #[must_use]
    pub fn hidden_files(mut self, hidden_files: bool) -> Self {
        self.options.hidden_files = hidden_files;
        self
    }

    /// Whether an encoded slash in a path is a slash, for programs that get the path as the client sent it. Default: such
    /// paths get 400.
    #[must_use]
    pub fn encoded_slashes(mut self, encoded_slashes: bool) -> Self {
        self.options.encoded_slashes = encoded_slashes;
        self
    }

    /// Extensions (lower case) of programs, whose source is never sent. Default: the extensions of PHP.
    #[must_use]
    pub fn source_extensions<S: Into<String>>(
        mut self,
        extensions: impl IntoIterator<Item = S>,
    ) -> Self {
        self.options.source_extensions = extensions.into_iter().map(Into::into).collect();
        self
    }

    /// Where symbolic links may lead. Default: below the root.
    #[must_use]
    pub fn symlinks(mut self, symlinks: Symlinks) -> Self {
        self.options.symlinks = symlinks;
        self
    }

    /// Fields added to every file; they replace fields of the same name.
    #[must_use]
    pub fn headers(mut self, headers: Headers) -> Self {
        self.options.headers = headers;
        self
    }

    /// As [`Files::headers`], for one more field besides those given before.
    #[must_use]
    pub fn field(mut self, name: &HeaderName, value: &HeaderValue) -> Self {
        self.options.headers.insert(name, value);
        self
    }

    /// Which codings are used, and from which length on. Default: all codings, from 1 KB on.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.options.compression = compression;
        self
    }

    /// Whether precompressed files beside a file are sent instead of it. Default: yes.
    #[must_use]
    pub fn precompressed(mut self, precompressed: bool) -> Self {
        self.options.precompressed = precompressed;
        self
    }

    /// The bytes of memory for files in each worker, and for the compressed variants of all workers
    /// together. Default: 64 MB.
    #[must_use]
    pub fn cache(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self.variants = Arc::new(VariantStore::new(bytes));
        self
    }

    /// The store of compressed variants, instead of one for these files only.
    #[must_use]
    pub fn variants(mut self, variants: Arc<VariantStore>) -> Self {
        self.variants = variants;
        self
    }

    /// The clock for revalidation. Default: [`coarse_now`].
    #[must_use]
    pub fn clock(mut self, clock: fn() -> Instant) -> Self {
        self.clock = clock;
        self
    }

    /// The service of the calling thread.
    pub fn build(&self) -> FilesService {
        FilesService::new(self)
    }
}

impl ServiceFactory for Files {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(self.build())
    }
}
