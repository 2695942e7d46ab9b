//! Static files.
//!
//! [`Files`] says which and how; each worker makes a [`FilesService`] of it. Answers are kept in
//! memory as they go over the wire, and looked after in the file system at most once a second.

mod content;
mod entry;
mod listing;
mod lookup;
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
use apus_net::coarse_now;

pub use apus_patterns::{Glob, InvalidGlob};
pub use service::FilesService;
pub use service::Handled;
pub use tree::Symlinks;
pub use try_files::{InvalidTryFiles, TryFiles};
pub use variants::Variants;

/// A tree of static files, as a service.
///
/// Files are answered with validators, ranges and compressed forms; folders with their index or a
/// listing. Outside of the root, hidden files (but for `/.well-known/`) and the source of PHP
/// programs are not found.
///
/// Text is compressed with brotli, zstd and gzip in the background, once for all workers, while the
/// first clients get it as it is. Files beside it (`.br`, `.zst`, `.gz`) that are not older are taken
/// instead. Text of more than 4 MB and up to 32 MB is compressed as it is sent, while there is memory for
/// compressors ([`ResponseMemory`](apus_http::ResponseMemory)); parts of it are parts of the file as it is.
///
/// What is not negotiated, as an image is not, is sent as it is whatever a client accepts; where there
/// are forms to choose from, a client that accepts none of them, not even `identity`, is answered 406
/// (RFC 9110 section 12.5.3). So is one that refuses `identity` while there is no memory for a compressor, or
/// too much to be compressed already; for others the file goes as it is.
#[derive(Clone)]
pub struct Files {
    options: Options,
    cache_bytes: u64,
    clock: fn() -> Instant,
    fallback: Option<Arc<dyn ServiceFactory>>,
    /// Shared by the services of all workers.
    variants: Arc<Variants>,
}

#[derive(Clone)]
struct Options {
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
    source_extensions: Vec<String>,
    /// Whether the fallback runs programs.
    runs_programs: bool,
    /// Whether programs are among the files, whoever runs them.
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
            options: Options {
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
            variants: Arc::new(Variants::new(CACHE_BYTES)),
        }
    }

    /// Takes this path off the front of each request's path before the root is put there instead, as
    /// `alias` does. Only whole segments count: `/a` is no prefix of `/ab`. In normal form, that is
    /// not percent-encoded; requests for anything else are not found.
    #[must_use]
    pub fn strip_prefix(mut self, prefix: &str) -> Self {
        self.options.prefix = prefix.trim_end_matches('/').into();
        self
    }

    /// Whether programs are run too.
    pub fn runs_programs(&self) -> bool {
        self.options.runs_programs
    }

    /// What [`Files::strip_prefix`] takes off.
    pub fn prefix(&self) -> &[u8] {
        &self.options.prefix
    }

    /// The names looked for in a folder, in this order. Default: `index.html`.
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

    /// What to look for, in turn, for a request. A last resort that is a path is looked for among the
    /// locations of a site anew; elsewhere, it is a file below the root.
    #[must_use]
    pub fn try_files(mut self, list: TryFiles) -> Self {
        self.options.try_files = Some(list);
        self
    }

    /// The file, by its path below the root, that answers for every page there is no file for, as
    /// single-page applications want it. Missing files of a known type other than HTML stay
    /// missing, so that a script that is not there does not turn out to be a page.
    #[must_use]
    pub fn spa(mut self, page: impl Into<String>) -> Self {
        self.options.spa = Some(page.into());
        self
    }

    /// What answers requests, of any method, for which there is no file. A last resort of
    /// [`Files::try_files`] that is a path goes there too, with path and query replaced.
    #[must_use]
    pub fn fallback(mut self, service: Arc<dyn ServiceFactory>) -> Self {
        self.fallback = Some(service);
        self
    }

    /// As [`Files::fallback`], with a service that runs programs, which are files too: it also gets
    /// requests for a path that ends like the name of a program, and for a folder whose first index file
    /// that exists is one. It is for that service to say which of them it runs.
    #[must_use]
    pub fn programs(self, service: Arc<dyn ServiceFactory>) -> Self {
        let mut files = self.fallback(service).beside_programs();
        files.options.runs_programs = true;
        files
    }

    /// Says that programs are among the files, whoever runs them: then what is left of one by editors
    /// and upgrades, and what programs include, is not found either, as `x.php.bak`, `x.old` and `x.inc`.
    #[must_use]
    pub fn beside_programs(mut self) -> Self {
        self.options.has_programs = true;
        self
    }

    /// Paths below the root at which there is nothing for anybody, whatever there is.
    #[must_use]
    pub fn protected(mut self, paths: impl IntoIterator<Item = Glob>) -> Self {
        self.options.protected = paths.into_iter().collect();
        self
    }

    /// `Cache-Control` by the path of the file below the root; the first pattern that matches counts.
    #[must_use]
    pub fn cache_control(mut self, rules: impl IntoIterator<Item = (Glob, HeaderValue)>) -> Self {
        self.options.cache_control = rules.into_iter().collect();
        self
    }

    /// Media types by extension (lower case, without its dot), before those of the built-in table.
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

    /// Extensions (lower case) of programs, whose source is never sent. Default: those of PHP.
    #[must_use]
    pub fn source_extensions<S: Into<String>>(
        mut self,
        extensions: impl IntoIterator<Item = S>,
    ) -> Self {
        self.options.source_extensions = extensions.into_iter().map(Into::into).collect();
        self
    }

    /// Where symbolic links may lead. Default: to below the root.
    #[must_use]
    pub fn symlinks(mut self, symlinks: Symlinks) -> Self {
        self.options.symlinks = symlinks;
        self
    }

    /// Fields added to every file; they replace those of the same name.
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

    /// What is compressed. Default: all codings, from 1 KB on.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.options.compression = compression;
        self
    }

    /// Whether compressed siblings of a file are sent in its place. Default: yes.
    #[must_use]
    pub fn precompressed(mut self, precompressed: bool) -> Self {
        self.options.precompressed = precompressed;
        self
    }

    /// How much memory each worker may keep files in, and how much all of them together may keep
    /// compressed forms in, in bytes. Default: 64 MB.
    #[must_use]
    pub fn cache(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self.variants = Arc::new(Variants::new(bytes));
        self
    }

    /// Where compressed forms are kept, in place of a store of these files' own.
    #[must_use]
    pub fn variants(mut self, variants: Arc<Variants>) -> Self {
        self.variants = variants;
        self
    }

    /// What tells the time, for revalidation. Default: [`coarse_now`].
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
