//! The file service of one worker, which responds from memory where possible.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use apus_http::fields::{AcceptEncoding, Coding};
use apus_http::{
    ConnectionReservation, HeaderValue, Method, Request, Response, ResponseFuture, Service,
    StatusCode, header,
};
use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use rustix::io::Errno;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use crate::body::{DiskWait, FileBytes};
use crate::changes::{ChangeWatch, CheckTime};
use crate::entry::{FileEntry, LoadedFile, VariantState};
use crate::listing;
use crate::page::{is_for_page, vary_by_page};
use crate::path_resolver::{FileWithSiblings, PathResolver, ResolvedPath, error_of};
use crate::representation::Representation;
use crate::tree::{REVALIDATE, Tree, status_of};
use crate::try_files::{LastAction, TryFiles};
use crate::variants::{VariantStore, VariantWait};
use crate::{Files, FilesOptions};
use apus_compress::{CodingRule, Encoding, describe, weaken_tag};
use apus_http::path::encode;
use apus_http::trace::{Step, StepKind, note};
use apus_http::{CacheBypass, mount_prefix};

/// [`Files`] on one worker.
pub struct FilesService {
    worker: Rc<WorkerFiles>,
}

/// The result of a request for a file.
pub enum FilesOutcome {
    /// A response.
    Response(ResponseFuture),
    /// There is no file, and `try_files` has rewritten the request to the path where it continues.
    Rewritten(Request),
}

impl From<Response> for FilesOutcome {
    fn from(response: Response) -> Self {
        Self::Response(response.into())
    }
}

struct WorkerFiles {
    options: FilesOptions,
    tree: Tree,
    clock: fn() -> Instant,
    /// Entries by the normal form of the path of a request; or, for a page that is sent for many
    /// paths, by its path below the root without a leading slash, which no request has.
    cache: RefCell<Cache<Box<[u8]>, CachedEntry, EntryWeighter>>,
    /// Entries that are being read from disk.
    loading: RefCell<HashMap<Box<[u8]>, Rc<LoadingCell>>>,
    variants: Arc<VariantStore>,
    changes: ChangeWatch,
    /// The root folder at the last lookup.
    root: Cell<Option<(u64, u64)>>,
    programs: RefCell<ProgramCache>,
    fallback: Option<Rc<dyn Service>>,
    /// Whether the last parameter of `try_files` is a path, which may apply to any method.
    may_rewrite: bool,
}

/// A short-lived cache of paths that were resolved to programs, such as folders with an index of
/// PHP, so that requests with a cached response cost no lookup in the file system.
#[derive(Default)]
struct ProgramCache {
    since: Option<Instant>,
    /// The paths of programs below the root, by the normal form of the path of a request.
    paths: HashMap<Box<[u8]>, Rc<[u8]>>,
}

/// The most programs in the cache.
const MAX_PROGRAMS: usize = 1024;

impl ProgramCache {
    fn get(&self, path: &[u8], now: Instant) -> Option<Rc<[u8]>> {
        self.since
            .filter(|since| now.saturating_duration_since(*since) < REVALIDATE)
            .and_then(|_| self.paths.get(path).cloned())
    }

    fn insert(&mut self, path: &[u8], program: &[u8], now: Instant) {
        let is_recent = |since: Instant| now.saturating_duration_since(since) < REVALIDATE;
        if !self.since.is_some_and(is_recent) || self.paths.len() >= MAX_PROGRAMS {
            self.paths.clear();
            self.since = Some(now);
        }
        self.paths.insert(path.into(), program.into());
    }
}

/// An entry that requests wait for.
type LoadingCell = OnceCell<Rc<FileEntry>>;

/// An entry with its weight when it was inserted into the cache.
#[derive(Clone)]
struct CachedEntry {
    entry: Rc<FileEntry>,
    weight: u64,
}

#[derive(Clone)]
struct EntryWeighter;

impl Weighter<Box<[u8]>, CachedEntry> for EntryWeighter {
    fn weight(&self, path: &Box<[u8]>, cached: &CachedEntry) -> u64 {
        cached.weight.saturating_add(path.len() as u64)
    }
}

const ALLOW: &str = "GET, HEAD, OPTIONS";

/// The approximate weight of a file with its header fields, to size the table of the cache.
const TYPICAL_WEIGHT: u64 = 16 << 10;

impl FilesService {
    pub(crate) fn new(files: &Files) -> Self {
        let entries = usize::try_from(files.cache_bytes / TYPICAL_WEIGHT).unwrap_or(usize::MAX);
        Self {
            worker: Rc::new(WorkerFiles {
                tree: Tree::new(files.options.root.clone(), files.options.symlinks),
                options: files.options.clone(),
                clock: files.clock,
                cache: RefCell::new(Cache::with_weighter(
                    entries.max(16),
                    files.cache_bytes,
                    EntryWeighter,
                )),
                loading: RefCell::default(),
                variants: Arc::clone(&files.variants),
                changes: ChangeWatch::new(&files.changes),
                root: Cell::default(),
                programs: RefCell::default(),
                fallback: files.fallback.as_ref().map(|factory| factory.service()),
                may_rewrite: files
                    .options
                    .try_files
                    .as_ref()
                    .is_some_and(TryFiles::ends_with_path),
            }),
        }
    }

    /// Responds to a request, or returns it for another location.
    pub fn handle(&self, request: Request) -> FilesOutcome {
        self.worker.handle(request)
    }
}

impl Service for FilesService {
    fn call(&self, request: Request) -> ResponseFuture {
        match self.worker.handle(request) {
            FilesOutcome::Response(response) => response,
            FilesOutcome::Rewritten(request) => self.worker.respond_after_rewrite(request),
        }
    }
}

impl WorkerFiles {
    fn handle(self: &Rc<Self>, request: Request) -> FilesOutcome {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        if !is_read && self.fallback.is_none() && !self.may_rewrite {
            note(&request, || {
                Step::new(StepKind::File, "none", "files are for GET and HEAD")
            });
            return method_not_allowed(&request).into();
        }
        let path = if self.options.encoded_slashes {
            request.normal_path()
        } else {
            request.plain_path()
        };
        let Ok(path) = path else {
            note(&request, || {
                Step::new(StepKind::File, "none", "the path is not valid")
            });
            return Response::new(StatusCode::BAD_REQUEST).into();
        };
        if let Some(programs) = &self.fallback
            && self.options.names_program(path)
        {
            return FilesOutcome::Response(programs.call(request));
        }
        let now = (self.clock)();
        if self.changes.has_news() {
            self.tree.forget();
        }
        if is_read && let Some(entry) = self.cached(path, now) {
            note(&request, || self.file_step(&entry, "in memory"));
            let choice = self.choose(&entry, path, &request);
            return FilesOutcome::Response(choice.respond(entry, request));
        }
        let path = path.to_vec();
        let program = self.programs.borrow().get(&path, now);
        if let Some(program) = program {
            return FilesOutcome::Response(self.run_program(request, &path, &program));
        }
        let found = self.resolve(now, |resolver| resolver.resolve(&path));
        self.respond_for(request, path, found, now)
    }

    /// The cached entry for a path, if it is still current.
    fn cached(&self, path: &[u8], now: Instant) -> Option<Rc<FileEntry>> {
        let entry = Rc::clone(&self.cache.borrow().get(path)?.entry);
        let checked = entry.checked.get();
        let is_due = now.saturating_duration_since(checked.time) >= REVALIDATE;
        if !is_due && !self.changes.is_outdated(checked) {
            return Some(entry);
        }
        let found = self.resolve(now, |resolver| match path.first() {
            Some(b'/') => resolver.resolve(path),
            _ => resolver.resolve_below(path),
        });
        if let ResolvedPath::File(found) = found
            && entry.is_made_from(&found)
        {
            entry.checked.set(self.check_time(now));
            return Some(entry);
        }
        self.cache.borrow_mut().remove(path);
        if is_due && entry.is_settled() {
            self.changes.report();
        }
        None
    }

    fn resolve(
        &self,
        now: Instant,
        find: impl FnOnce(&PathResolver<'_>) -> ResolvedPath,
    ) -> ResolvedPath {
        match self.tree.root(now) {
            Ok(root) => {
                let last = self.root.replace(Some(root.inode()));
                if last.is_some_and(|last| last != root.inode()) {
                    self.changes.report();
                }
                find(&PathResolver {
                    options: &self.options,
                    root: &root,
                })
            }
            Err(errno) => error_of(errno),
        }
    }

    /// Responds according to a resolved path.
    fn respond_for(
        self: &Rc<Self>,
        mut request: Request,
        path: Vec<u8>,
        found: ResolvedPath,
        now: Instant,
    ) -> FilesOutcome {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match found {
            ResolvedPath::File(_) | ResolvedPath::Listing(_) | ResolvedPath::MissingSlash
                if !is_read =>
            {
                method_not_allowed(&request).into()
            }
            ResolvedPath::File(found) => {
                FilesOutcome::Response(self.load(request, path, *found, now))
            }
            ResolvedPath::MissingSlash => {
                note(&request, || {
                    let folder = self.full_path(self.below_prefix(&path));
                    Step::new(StepKind::File, folder, "a folder has a slash at its end")
                });
                redirect_to_slash(&request, &path).into()
            }
            ResolvedPath::Listing(folder) => {
                FilesOutcome::Response(self.respond_with_listing(request, &path, folder, now))
            }
            ResolvedPath::NoIndex => FilesOutcome::Response(self.respond_not_found(
                request,
                &path,
                StatusCode::FORBIDDEN,
                now,
            )),
            ResolvedPath::Program(program) => {
                self.programs.borrow_mut().insert(&path, &program, now);
                FilesOutcome::Response(self.run_program(request, &path, &program))
            }
            ResolvedPath::NotFound => FilesOutcome::Response(self.respond_not_found(
                request,
                &path,
                StatusCode::NOT_FOUND,
                now,
            )),
            ResolvedPath::Error(status) | ResolvedPath::Last(LastAction::Status(status)) => {
                note(&request, || {
                    Step::new(StepKind::File, "none", format!("responded with {status}"))
                });
                Response::new(status).into()
            }
            ResolvedPath::Last(LastAction::Rewrite(rewrite)) => {
                let uri = rewrite.uri(&request, &path);
                let uri = String::from_utf8_lossy(&uri);
                note(&request, || {
                    Step::new(StepKind::Rewrite, &*uri, "no path of try_files exists")
                });
                if request.set_path_and_query(&uri).is_err() {
                    return Response::new(StatusCode::NOT_FOUND).into();
                }
                if !rewrite.depends_only_on_target() {
                    request.extensions_mut().insert(CacheBypass);
                }
                if let Some(fallback) = &self.fallback {
                    return FilesOutcome::Response(fallback.call(request));
                }
                // At the same path, it would be rewritten again.
                if request.plain_path().is_ok_and(|new| *new == *path) {
                    FilesOutcome::Response(self.respond_after_rewrite(request))
                } else {
                    FilesOutcome::Rewritten(request)
                }
            }
        }
    }

    /// Forwards a request to the service that runs programs, by the path of the program below the
    /// root.
    fn run_program(&self, mut request: Request, path: &[u8], program: &[u8]) -> ResponseFuture {
        let Some(programs) = &self.fallback else {
            return Response::new(StatusCode::NOT_FOUND).into();
        };
        let below = self.below_prefix(path);
        let below = below.strip_prefix(b"/").unwrap_or(below);
        // The service finds the index of a folder itself, and needs the path as it was sent.
        let folder = program
            .len()
            .checked_sub(
                program
                    .rsplit(|byte| *byte == b'/')
                    .next()
                    .map_or(0, <[u8]>::len),
            )
            .and_then(|end| program.get(..end));
        if folder != Some(below) {
            let mut uri = encode(&[&*self.options.prefix, b"/", program].concat());
            if let Some(query) = request.query() {
                uri.push('?');
                uri.push_str(query);
            }
            if request.set_path_and_query(&uri).is_err() {
                return Response::new(StatusCode::NOT_FOUND).into();
            }
        }
        programs.call(request)
    }

    /// Responds to a request that `try_files` has rewritten and that no other location handles.
    fn respond_after_rewrite(self: &Rc<Self>, request: Request) -> ResponseFuture {
        let path = request.plain_path().unwrap_or_default().to_vec();
        self.respond_with_page(request, &path, StatusCode::NOT_FOUND, (self.clock)())
    }

    /// Responds for a path without a file.
    fn respond_not_found(
        self: &Rc<Self>,
        request: Request,
        path: &[u8],
        status: StatusCode,
        now: Instant,
    ) -> ResponseFuture {
        if let Some(page) = &self.options.spa
            && matches!(*request.method(), Method::GET | Method::HEAD)
        {
            if !is_for_page(&request, path) {
                let missing = match &self.fallback {
                    Some(fallback) => fallback.call(request),
                    None => Response::new(StatusCode::NOT_FOUND).into(),
                };
                return missing.map(|mut response| {
                    vary_by_page(&mut response);
                    response
                });
            }
            note(&request, || {
                Step::new(
                    StepKind::Rewrite,
                    page.as_str(),
                    "the page of the application",
                )
            });
            let page = self.respond_with_page(request, page.as_bytes(), status, now);
            return page.map(|mut response| {
                vary_by_page(&mut response);
                response
            });
        }
        if let Some(fallback) = &self.fallback {
            return fallback.call(request);
        }
        note(&request, || {
            let path = self.full_path(self.below_prefix(path));
            let why = match status {
                StatusCode::FORBIDDEN => format!("{path} has no index and must not be listed"),
                _ => format!("{path} does not exist, or must not be sent"),
            };
            Step::new(StepKind::File, "none", why)
        });
        Response::new(status).into()
    }

    /// Responds with one file, by its path below the root, for a path without a file.
    fn respond_with_page(
        self: &Rc<Self>,
        request: Request,
        path: &[u8],
        status: StatusCode,
        now: Instant,
    ) -> ResponseFuture {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return method_not_allowed(&request).into();
        }
        let key = path.strip_prefix(b"/").unwrap_or(path);
        if let Some(entry) = self.cached(key, now) {
            note(&request, || self.file_step(&entry, "in memory"));
            return self.choose(&entry, key, &request).respond(entry, request);
        }
        match self.resolve(now, |resolver| resolver.resolve_below(path)) {
            ResolvedPath::File(found) => self.load(request, key.to_owned(), *found, now),
            ResolvedPath::Error(failed) => Response::new(failed).into(),
            _ => Response::new(status).into(),
        }
    }

    /// Reads a file, caches it, and responds with it.
    fn load(
        self: &Rc<Self>,
        request: Request,
        path: Vec<u8>,
        found: FileWithSiblings,
        now: Instant,
    ) -> ResponseFuture {
        let checked = self.check_time(now);
        match found.load(DiskWait::Never) {
            Ok(loaded) => {
                let entry = self.new_entry(&path, (found, loaded), checked);
                note(&request, || {
                    self.file_step(&entry, "read from the page cache")
                });
                self.choose(&entry, &path, &request).respond(entry, request)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let worker = Rc::clone(self);
                ResponseFuture::later(async move {
                    match worker.load_from_disk(&path, found, checked).await {
                        Ok(entry) => {
                            note(&request, || worker.file_step(&entry, "read from the disk"));
                            let choice = worker.choose(&entry, &path, &request);
                            choice.respond(entry, request).wait().await
                        }
                        Err(error) => unreadable(&path, &error),
                    }
                })
            }
            Err(error) => unreadable(&path, &error).into(),
        }
    }

    /// Reads a file on a thread that may block, once for all requests that wait for it.
    async fn load_from_disk(
        &self,
        path: &[u8],
        found: FileWithSiblings,
        checked: CheckTime,
    ) -> io::Result<Rc<FileEntry>> {
        let guard = LoadingGuard::new(self, path);
        let load = || async {
            let loading = spawn_blocking(move || {
                let loaded = found.load(DiskWait::ForDisk)?;
                io::Result::Ok((found, loaded))
            });
            let (found, loaded) = loading.await.map_err(io::Error::other)??;
            Ok(self.new_entry(path, (found, loaded), checked))
        };
        guard.cell.get_or_try_init(load).await.cloned()
    }

    fn check_time(&self, now: Instant) -> CheckTime {
        CheckTime {
            time: now,
            changes: self.changes.known(),
        }
    }

    /// The entry of a file that was read, which is cached.
    fn new_entry(
        &self,
        path: &[u8],
        (found, loaded): (FileWithSiblings, LoadedFile),
        checked: CheckTime,
    ) -> Rc<FileEntry> {
        for identity in found.identities().iter().flatten() {
            self.changes.report_young(identity);
        }
        let entry = Rc::new(FileEntry::new(&self.options, found, loaded, checked));
        self.insert(path, &entry);
        entry
    }

    /// Inserts an entry into the cache with its current weight.
    fn insert(&self, path: &[u8], entry: &Rc<FileEntry>) {
        if entry.is_cacheable {
            let cached = CachedEntry {
                entry: Rc::clone(entry),
                weight: entry.weight(),
            };
            self.cache.borrow_mut().insert(path.into(), cached);
        }
    }

    /// Negotiates the content coding of the response (RFC 9110 section 12.5.3). The most preferred
    /// variant that is ready is sent, and the most preferred of all is requested for later
    /// requests. A variant that is compressed while it is sent is only for complete responses, as
    /// long as there is memory for compressors.
    fn choose(&self, entry: &Rc<FileEntry>, path: &[u8], request: &Request) -> VariantChoice {
        let plain = || VariantChoice::Ready(Rc::clone(&entry.plain));
        let headers = request.headers();
        if !entry.is_negotiated()
            || !headers.contains("accept-encoding")
            || !CodingRule::allows(request, || entry.plain.whole())
        {
            return plain();
        }
        let accept = AcceptEncoding::parse(headers.get_all("accept-encoding"));
        if entry.plain.coding != Coding::Identity {
            return if accept.accepts(entry.plain.coding) {
                plain()
            } else {
                self.choose_decoded(entry, &accept)
            };
        }
        let mut possible = None;
        let mut is_streamed = false;
        for coding in accept.preferred() {
            if coding == Coding::Identity && !is_streamed {
                return plain();
            }
            let variants = possible.is_none().then_some(&self.variants);
            match entry.variant(coding, variants) {
                VariantState::Never => {}
                VariantState::Streamed
                    if headers.contains("range") && accept.accepts(Coding::Identity) => {}
                // A variant that exists costs nothing, and is smaller than what is made in passing.
                VariantState::Streamed => is_streamed = true,
                VariantState::Possible => possible = possible.or(Some(coding)),
                VariantState::Ready(variant) => return VariantChoice::Ready(variant),
                VariantState::NewlyReady(variant) => {
                    self.update_weight(path, entry);
                    return VariantChoice::Ready(variant);
                }
            }
        }
        if is_streamed {
            for coding in accept.preferred() {
                if coding == Coding::Identity {
                    return plain();
                }
                if matches!(entry.variant(coding, None), VariantState::Streamed)
                    && let Some(choice) = self.stream(coding, request)
                {
                    return choice;
                }
            }
            return VariantChoice::None;
        }
        let choice = possible.and_then(|coding| {
            if !self.variants.can_keep(entry.plain.body.len()) {
                return self.stream(coding, request);
            }
            let wait = self.variants.wait(entry.key(coding), entry.source())?;
            Some(VariantChoice::Make(coding, wait))
        });
        choice.unwrap_or(VariantChoice::None)
    }

    /// The decoded form of a file that is stored in a coding which the client does not accept.
    fn choose_decoded(&self, entry: &Rc<FileEntry>, accept: &AcceptEncoding) -> VariantChoice {
        match entry.decoded() {
            Some(decoded) if accept.accepts(Coding::Identity) => VariantChoice::Ready(decoded),
            _ => VariantChoice::None,
        }
    }

    /// Chooses compression while sending, if there is memory for it.
    fn stream(&self, coding: Coding, request: &Request) -> Option<VariantChoice> {
        let encoding = Encoding::of_dynamic(coding, self.options.compression);
        let memory = match *request.method() {
            Method::HEAD => None,
            _ => Some(encoding.reserve(request.connection().id)?),
        };
        Some(VariantChoice::Stream(encoding, memory))
    }

    /// Updates the weight of a cached entry.
    fn update_weight(&self, path: &[u8], entry: &Rc<FileEntry>) {
        let is_cached = self
            .cache
            .borrow()
            .peek(path)
            .is_some_and(|cached| Rc::ptr_eq(&cached.entry, entry));
        if is_cached {
            self.insert(path, entry);
        }
    }

    /// Responds with the listing of a folder.
    fn respond_with_listing(
        &self,
        request: Request,
        path: &[u8],
        folder: Vec<u8>,
        now: Instant,
    ) -> ResponseFuture {
        let root = match self.tree.root(now) {
            Ok(root) => root,
            Err(errno) => return Response::new(status_of(errno)).into(),
        };
        note(&request, || {
            Step::new(
                StepKind::File,
                self.full_path(&folder),
                "a folder without an index, listed",
            )
        });
        let order = listing::ListingOrder::of(request.query());
        let format = listing::ListingFormat::of(&request);
        let request_path = [mount_prefix(&request).as_bytes(), path].concat();
        let options = self.options.clone();
        ResponseFuture::later(async move {
            let listing = spawn_blocking(move || {
                let entries = listing::read(&root, &folder, &options)?;
                io::Result::Ok(listing::write(entries, &request_path, order, format))
            });
            match listing.await {
                Ok(Ok(text)) => format.respond(text),
                Ok(Err(error)) => unreadable(request.path().as_bytes(), &error),
                Err(error) => unreadable(request.path().as_bytes(), &io::Error::other(error)),
            }
        })
    }
}

/// Steps for `apus explain`.
impl WorkerFiles {
    fn file_step(&self, entry: &FileEntry, why: &str) -> Step {
        Step::new(StepKind::File, self.full_path(&entry.path), why)
    }

    /// The absolute path of a file, by its path below the root.
    fn full_path(&self, below: &[u8]) -> String {
        let below = OsStr::from_bytes(below.strip_prefix(b"/").unwrap_or(below));
        let path = self.options.root.join(below);
        path.to_string_lossy().into_owned()
    }

    fn below_prefix<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        path.strip_prefix(&*self.options.prefix).unwrap_or(path)
    }
}

/// The participation of one request in the loading of a file.
struct LoadingGuard<'a> {
    worker: &'a WorkerFiles,
    path: &'a [u8],
    cell: Rc<LoadingCell>,
}

impl<'a> LoadingGuard<'a> {
    fn new(worker: &'a WorkerFiles, path: &'a [u8]) -> Self {
        let mut loading = worker.loading.borrow_mut();
        let cell = Rc::clone(loading.entry(path.into()).or_default());
        Self { worker, path, cell }
    }
}

impl Drop for LoadingGuard<'_> {
    fn drop(&mut self) {
        // Only the map and this request have it: no other request waits.
        if Rc::strong_count(&self.cell) == 2 {
            self.worker.loading.borrow_mut().remove(self.path);
        }
    }
}

/// Which variant to send.
enum VariantChoice {
    Ready(Rc<Representation>),
    /// No variant that is ready is accepted, but this one is being made.
    Make(Coding, VariantWait),
    /// The file is compressed while it is sent, with this memory.
    Stream(Encoding, Option<ConnectionReservation>),
    None,
}

impl VariantChoice {
    fn respond(self, entry: Rc<FileEntry>, request: Request) -> ResponseFuture {
        match self {
            Self::Ready(variant) => {
                note(&request, || {
                    Step::new(
                        StepKind::Content,
                        variant.coding.as_str(),
                        "by accept-encoding",
                    )
                });
                variant.respond(&request).into()
            }
            Self::Make(coding, wait) => respond_when_made(entry, coding, wait, request),
            Self::Stream(encoding, memory) => {
                note(&request, || {
                    Step::new(
                        StepKind::Content,
                        encoding.coding.as_str(),
                        "by accept-encoding, compressed while it is sent",
                    )
                });
                respond_streamed(&entry, encoding, memory, &request).into()
            }
            Self::None => not_acceptable().into(),
        }
    }
}

/// Responds with a variant that is being made, for a client that accepts no other.
fn respond_when_made(
    entry: Rc<FileEntry>,
    coding: Coding,
    wait: VariantWait,
    request: Request,
) -> ResponseFuture {
    let respond = move |entry: &FileEntry, made: Option<FileBytes>, request: &Request| match made {
        Some(body) => entry.representation(body, coding).respond(request),
        None => not_acceptable(),
    };
    match wait.variant_if_made() {
        Some(made) => respond(&entry, made, &request).into(),
        None => {
            ResponseFuture::later(async move { respond(&entry, wait.variant().await, &request) })
        }
    }
}

/// Responds with a complete file that is compressed while it is sent.
fn respond_streamed(
    entry: &FileEntry,
    encoding: Encoding,
    memory: Option<ConnectionReservation>,
    request: &Request,
) -> Response {
    let mut response = entry.plain.respond_whole(request);
    match response.status() {
        StatusCode::OK => {
            let body = response.take_body();
            *response.body_mut() = encoding.stream(body, memory);
            describe(response.headers_mut(), encoding.coding);
        }
        _ => weaken_tag(response.headers_mut()),
    }
    response
}

/// The response to methods that files do not support.
fn method_not_allowed(request: &Request) -> Response {
    Response::refuse_method(request.method(), &HeaderValue::from_static(ALLOW))
}

fn not_acceptable() -> Response {
    Response::new(StatusCode::NOT_ACCEPTABLE)
        .with_header(&header::VARY, &HeaderValue::from_static("accept-encoding"))
}

/// Redirects to the same path with a slash. The path starts with exactly one slash and contains no
/// double slash, so that the location cannot be taken for another host.
fn redirect_to_slash(request: &Request, path: &[u8]) -> Response {
    let mut location = mount_prefix(request).to_owned();
    location.push_str(&encode(path));
    location.push('/');
    if let Some(query) = request.query() {
        location.push('?');
        location.push_str(query);
    }
    let mut response = Response::new(StatusCode::MOVED_PERMANENTLY);
    // The path is encoded and the query is visible ASCII, so that the value is valid.
    let _ = response.headers_mut().try_append("location", location);
    response
}

/// The response for a file or folder that was opened and cannot be read.
fn unreadable(path: &[u8], error: &io::Error) -> Response {
    let status = Errno::from_io_error(error).map_or(StatusCode::INTERNAL_SERVER_ERROR, status_of);
    if status.is_server_error() {
        let path = String::from_utf8_lossy(path);
        tracing::error!(%path, %error, "a file could not be read");
    }
    Response::new(status)
}
