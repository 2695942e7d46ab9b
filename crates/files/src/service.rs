//! The service of one worker: from the request to the answer, out of memory where that is possible.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use apus_http::fields::{AcceptEncoding, Coding};
use apus_http::{
    Answer, ConnectionReservation, HeaderValue, Method, Request, Response, Service, StatusCode,
    header,
};
use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use crate::content::{Content, Wait};
use crate::entry::{Entry, Form};
use crate::listing;
use crate::lookup::{Found, FoundFile, Lookup};
use crate::representation::Representation;
use crate::tree::{REVALIDATE, Tree};
use crate::try_files::{Last, TryFiles};
use crate::variants::{Variants, Waiting};
use crate::{Files, Options};
use apus_compress::{Encoding, describe, weaken_tag};
use apus_http::mounted_at;
use apus_http::path::encode;
use apus_http::trace::{Step, StepKind, note};
use apus_media_type as media_type;

/// [`Files`] on one worker.
pub struct FilesService {
    worker: Rc<Worker>,
}

/// What came of a request.
pub enum Handled {
    /// It was answered.
    Answer(Answer),
    /// There is no file: `try_files` has given the request the path where it goes on.
    Elsewhere(Request),
}

impl From<Response> for Handled {
    fn from(response: Response) -> Self {
        Self::Answer(response.into())
    }
}

struct Worker {
    options: Options,
    tree: Tree,
    clock: fn() -> Instant,
    /// By the normal form of the path of a request; or, for a page that answers for many paths, by
    /// its path below the root without a slash at its start, which no request can have.
    cache: RefCell<Cache<Box<[u8]>, Cached, Weight>>,
    /// What is being read from the disk.
    loading: RefCell<HashMap<Box<[u8]>, Rc<Loading>>>,
    variants: Arc<Variants>,
    programs: RefCell<Programs>,
    fallback: Option<Rc<dyn Service>>,
    /// Whether the last resort of `try_files` is a path, which may be one for any method.
    leads_elsewhere: bool,
}

/// Paths that a moment ago led to programs, such as folders with an index of PHP: whose answer is in a
/// cache is not looked up in the file system for each request.
#[derive(Default)]
struct Programs {
    since: Option<Instant>,
    /// By the normal form of the path of a request, the path of the program below the root.
    known: HashMap<Box<[u8]>, Rc<[u8]>>,
}

/// How many programs are known at a time.
const MOST_PROGRAMS: usize = 1024;

impl Programs {
    fn get(&self, path: &[u8], now: Instant) -> Option<Rc<[u8]>> {
        self.since
            .filter(|since| now.saturating_duration_since(*since) < REVALIDATE)
            .and_then(|_| self.known.get(path).cloned())
    }

    fn insert(&mut self, path: &[u8], program: &[u8], now: Instant) {
        let is_recent = |since: Instant| now.saturating_duration_since(since) < REVALIDATE;
        if !self.since.is_some_and(is_recent) || self.known.len() >= MOST_PROGRAMS {
            self.known.clear();
            self.since = Some(now);
        }
        self.known.insert(path.into(), program.into());
    }
}

/// An entry that requests wait for.
type Loading = OnceCell<Rc<Entry>>;

/// An entry with what it weighed when it was put into the cache.
#[derive(Clone)]
struct Cached {
    entry: Rc<Entry>,
    weight: u64,
}

#[derive(Clone)]
struct Weight;

impl Weighter<Box<[u8]>, Cached> for Weight {
    fn weight(&self, path: &Box<[u8]>, cached: &Cached) -> u64 {
        cached.weight.saturating_add(path.len() as u64)
    }
}

const ALLOW: &str = "GET, HEAD, OPTIONS";

/// About what a file with its field lines takes, to size the table of the cache.
const TYPICAL_WEIGHT: u64 = 16 << 10;

impl FilesService {
    pub(crate) fn new(files: &Files) -> Self {
        let entries = usize::try_from(files.cache_bytes / TYPICAL_WEIGHT).unwrap_or(usize::MAX);
        Self {
            worker: Rc::new(Worker {
                tree: Tree::new(files.options.root.clone(), files.options.symlinks),
                options: files.options.clone(),
                clock: files.clock,
                cache: RefCell::new(Cache::with_weighter(
                    entries.max(16),
                    files.cache_bytes,
                    Weight,
                )),
                loading: RefCell::default(),
                variants: Arc::clone(&files.variants),
                programs: RefCell::default(),
                fallback: files.fallback.as_ref().map(|factory| factory.service()),
                leads_elsewhere: files
                    .options
                    .try_files
                    .as_ref()
                    .is_some_and(TryFiles::ends_with_path),
            }),
        }
    }

    /// Answers a request, or gives it back for another location to answer.
    pub fn handle(&self, request: Request) -> Handled {
        self.worker.handle(request)
    }
}

impl Service for FilesService {
    fn call(&self, request: Request) -> Answer {
        match self.worker.handle(request) {
            Handled::Answer(answer) => answer,
            Handled::Elsewhere(request) => self.worker.stay(request),
        }
    }
}

impl Worker {
    fn handle(self: &Rc<Self>, request: Request) -> Handled {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        if !is_read && self.fallback.is_none() && !self.leads_elsewhere {
            note(&request, || {
                Step::new(StepKind::File, "none", "files are for GET and HEAD")
            });
            return not_read(&request).into();
        }
        let Ok(path) = request.plain_path() else {
            note(&request, || {
                Step::new(StepKind::File, "none", "the path is not valid")
            });
            return Response::new(StatusCode::BAD_REQUEST).into();
        };
        if let Some(programs) = &self.fallback
            && self.options.names_program(path)
        {
            return Handled::Answer(programs.call(request));
        }
        let now = (self.clock)();
        if is_read && let Some(entry) = self.cached(path, now) {
            note(&request, || self.file_step(&entry, "in memory"));
            let choice = self.choose(&entry, path, &request);
            return Handled::Answer(choice.respond(entry, request));
        }
        let path = path.to_vec();
        let program = self.programs.borrow().get(&path, now);
        if let Some(program) = program {
            return Handled::Answer(self.run(request, &path, &program));
        }
        let found = self.look(now, |lookup| lookup.find(&path, request.query()));
        self.settle(request, path, found, now)
    }

    /// The entry for a path, if there is one that is still true.
    fn cached(&self, path: &[u8], now: Instant) -> Option<Rc<Entry>> {
        let entry = Rc::clone(&self.cache.borrow().get(path)?.entry);
        if now.saturating_duration_since(entry.checked.get()) < REVALIDATE {
            return Some(entry);
        }
        // The query only has a part in the last resort of try_files, which is kept as a page.
        let found = self.look(now, |lookup| match path.first() {
            Some(b'/') => lookup.find(path, None),
            _ => lookup.find_below(path),
        });
        if let Found::File(found) = found
            && entry.is_made_from(&found)
        {
            entry.checked.set(now);
            return Some(entry);
        }
        self.cache.borrow_mut().remove(path);
        None
    }

    fn look(&self, now: Instant, find: impl FnOnce(&Lookup<'_>) -> Found) -> Found {
        match self.tree.root(now) {
            Ok(root) => find(&Lookup {
                options: &self.options,
                root: &root,
            }),
            Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
                Found::Failed(StatusCode::SERVICE_UNAVAILABLE)
            }
            Err(_) => Found::Missing,
        }
    }

    /// Answers with what was found.
    fn settle(
        self: &Rc<Self>,
        mut request: Request,
        path: Vec<u8>,
        found: Found,
        now: Instant,
    ) -> Handled {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match found {
            Found::File(_) | Found::Listing(_) | Found::Unslashed if !is_read => {
                not_read(&request).into()
            }
            Found::File(found) => Handled::Answer(self.load(request, path, *found, now)),
            Found::Unslashed => {
                note(&request, || {
                    let folder = self.full_path(self.below_prefix(&path));
                    Step::new(StepKind::File, folder, "a folder has a slash at its end")
                });
                add_slash(&request, &path).into()
            }
            Found::Listing(folder) => Handled::Answer(self.list(request, &path, folder, now)),
            Found::NoIndex => {
                Handled::Answer(self.nothing(request, &path, StatusCode::FORBIDDEN, now))
            }
            Found::Program(program) => {
                self.programs.borrow_mut().insert(&path, &program, now);
                Handled::Answer(self.run(request, &path, &program))
            }
            Found::Missing => {
                Handled::Answer(self.nothing(request, &path, StatusCode::NOT_FOUND, now))
            }
            Found::Failed(status) | Found::Last(Last::Status(status)) => {
                note(&request, || {
                    Step::new(StepKind::File, "none", format!("answered {status}"))
                });
                Response::new(status).into()
            }
            Found::Last(Last::Rewrite(uri)) => {
                note(&request, || {
                    Step::new(
                        StepKind::Rewrite,
                        uri.as_str(),
                        "no file of try_files is there",
                    )
                });
                if request.set_path_and_query(&uri).is_err() {
                    return Response::new(StatusCode::NOT_FOUND).into();
                }
                if let Some(fallback) = &self.fallback {
                    return Handled::Answer(fallback.call(request));
                }
                // Where it is already, it would be sent on again.
                match request.plain_path().is_ok_and(|new| *new == *path) {
                    true => Handled::Answer(self.stay(request)),
                    false => Handled::Elsewhere(request),
                }
            }
        }
    }

    /// Has a program answer, by its path below the root.
    fn run(&self, mut request: Request, path: &[u8], program: &[u8]) -> Answer {
        let Some(programs) = &self.fallback else {
            return Response::new(StatusCode::NOT_FOUND).into();
        };
        let below = self.below_prefix(path);
        let below = below.strip_prefix(b"/").unwrap_or(below);
        // What runs it finds the index of a folder itself, and does best with the path as it was sent.
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

    /// Answers a request that `try_files` has sent to another path, where nothing else does.
    fn stay(self: &Rc<Self>, request: Request) -> Answer {
        let path = request.plain_path().unwrap_or_default().to_vec();
        self.page(request, &path, StatusCode::NOT_FOUND, (self.clock)())
    }

    /// Answers for a path with nothing there.
    fn nothing(
        self: &Rc<Self>,
        request: Request,
        path: &[u8],
        status: StatusCode,
        now: Instant,
    ) -> Answer {
        if let Some(page) = &self.options.spa
            && matches!(*request.method(), Method::GET | Method::HEAD)
            && is_page(path)
        {
            note(&request, || {
                Step::new(
                    StepKind::Rewrite,
                    page.as_str(),
                    "the page of the application",
                )
            });
            return self.page(request, page.as_bytes(), status, now);
        }
        if let Some(fallback) = &self.fallback {
            return fallback.call(request);
        }
        note(&request, || {
            let path = self.full_path(self.below_prefix(path));
            let why = match status {
                StatusCode::FORBIDDEN => format!("{path} has no index and is not to be listed"),
                _ => format!("{path} is not there, or not to be sent"),
            };
            Step::new(StepKind::File, "none", why)
        });
        Response::new(status).into()
    }

    /// Answers with one file, by its path below the root, for a path with nothing there.
    fn page(
        self: &Rc<Self>,
        request: Request,
        path: &[u8],
        status: StatusCode,
        now: Instant,
    ) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return not_read(&request).into();
        }
        let key = path.strip_prefix(b"/").unwrap_or(path);
        if let Some(entry) = self.cached(key, now) {
            note(&request, || self.file_step(&entry, "in memory"));
            return self.choose(&entry, key, &request).respond(entry, request);
        }
        match self.look(now, |lookup| lookup.find_below(path)) {
            Found::File(found) => self.load(request, key.to_owned(), *found, now),
            Found::Failed(failed) => Response::new(failed).into(),
            _ => Response::new(status).into(),
        }
    }

    /// Reads a file, keeps it, and answers with it.
    fn load(
        self: &Rc<Self>,
        request: Request,
        path: Vec<u8>,
        found: FoundFile,
        now: Instant,
    ) -> Answer {
        match found.load(Wait::Never) {
            Ok(loaded) => {
                let entry = Rc::new(Entry::new(&self.options, found, loaded, now));
                self.keep(&path, &entry);
                note(&request, || {
                    self.file_step(&entry, "read from the page cache")
                });
                self.choose(&entry, &path, &request).respond(entry, request)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let worker = Rc::clone(self);
                Answer::later(async move {
                    match worker.load_from_disk(&path, found, now).await {
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

    /// Reads a file on a thread that may block; once, however many requests wait for it.
    async fn load_from_disk(
        &self,
        path: &[u8],
        found: FoundFile,
        now: Instant,
    ) -> io::Result<Rc<Entry>> {
        let turn = Turn::take(self, path);
        let load = || async {
            let loading = spawn_blocking(move || {
                let loaded = found.load(Wait::ForDisk)?;
                io::Result::Ok((found, loaded))
            });
            let (found, loaded) = loading.await.map_err(io::Error::other)??;
            let entry = Rc::new(Entry::new(&self.options, found, loaded, now));
            self.keep(path, &entry);
            Ok(entry)
        };
        turn.cell.get_or_try_init(load).await.cloned()
    }

    /// Puts an entry into the cache, at what it weighs now.
    fn keep(&self, path: &[u8], entry: &Rc<Entry>) {
        if entry.is_cacheable {
            let cached = Cached {
                entry: Rc::clone(entry),
                weight: entry.weight(),
            };
            self.cache.borrow_mut().insert(path.into(), cached);
        }
    }

    /// Negotiates the form of the answer (RFC 9110 section 12.5.3). The most welcome form that is
    /// there wins; the most welcome of all is asked for, to be there next time. One that is made as it is
    /// sent is for those who want all of it, as far as there is memory for compressors.
    fn choose(&self, entry: &Rc<Entry>, path: &[u8], request: &Request) -> Choice {
        let plain = || Choice::Form(Rc::clone(&entry.plain));
        let headers = request.headers();
        if !entry.is_negotiated() || !headers.contains("accept-encoding") {
            return plain();
        }
        let accept = AcceptEncoding::parse(headers.get_all("accept-encoding"));
        let mut possible = None;
        for coding in accept.preferred() {
            if coding == Coding::Identity {
                return plain();
            }
            let variants = possible.is_none().then_some(&self.variants);
            match entry.form(coding, variants) {
                Form::Never => {}
                Form::Streamed if headers.contains("range") && accept.accepts(Coding::Identity) => {
                }
                Form::Streamed => {
                    if let Some(choice) = self.stream(coding, request) {
                        return choice;
                    }
                }
                Form::Possible => possible = possible.or(Some(coding)),
                Form::Ready(form) => return Choice::Form(form),
                Form::Arrived(form) => {
                    self.weigh_again(path, entry);
                    return Choice::Form(form);
                }
            }
        }
        let made = possible.and_then(|coding| {
            if !self.variants.keeps(entry.plain.content.len()) {
                return self.stream(coding, request);
            }
            let waiting = self.variants.wait(entry.key(coding), entry.source())?;
            Some(Choice::Make(coding, waiting))
        });
        made.unwrap_or(Choice::None)
    }

    /// Chooses the form that is made as it is sent, if there is memory for that.
    fn stream(&self, coding: Coding, request: &Request) -> Option<Choice> {
        let encoding = Encoding::of_dynamic(coding, self.options.compression);
        let memory = match *request.method() {
            Method::HEAD => None,
            _ => Some(encoding.reserve(request.connection().id)?),
        };
        Some(Choice::Stream(encoding, memory))
    }

    /// Tells the cache of what an entry has got.
    fn weigh_again(&self, path: &[u8], entry: &Rc<Entry>) {
        let is_kept = self
            .cache
            .borrow()
            .peek(path)
            .is_some_and(|cached| Rc::ptr_eq(&cached.entry, entry));
        if is_kept {
            self.keep(path, entry);
        }
    }

    /// Answers with what is in a folder.
    fn list(&self, request: Request, path: &[u8], folder: Vec<u8>, now: Instant) -> Answer {
        let Ok(root) = self.tree.root(now) else {
            return Response::new(StatusCode::NOT_FOUND).into();
        };
        note(&request, || {
            Step::new(
                StepKind::File,
                self.full_path(&folder),
                "a folder without an index, which is listed",
            )
        });
        let order = listing::Order::of(request.query());
        let format = listing::Format::of(&request);
        let shown = [mounted_at(&request).as_bytes(), path].concat();
        let options = self.options.clone();
        Answer::later(async move {
            let listing = spawn_blocking(move || {
                let entries = listing::read(&root, &folder, &options)?;
                io::Result::Ok(listing::write(entries, &shown, order, format))
            });
            match listing.await {
                Ok(Ok(text)) => format.respond(text),
                Ok(Err(error)) => unreadable(request.path().as_bytes(), &error),
                Err(error) => unreadable(request.path().as_bytes(), &io::Error::other(error)),
            }
        })
    }
}

/// What is told to those who ask why.
impl Worker {
    fn file_step(&self, entry: &Entry, why: &str) -> Step {
        Step::new(StepKind::File, self.full_path(&entry.path), why)
    }

    /// The path of a file from the root of the system, by its path below the root of these.
    fn full_path(&self, below: &[u8]) -> String {
        let below = OsStr::from_bytes(below.strip_prefix(b"/").unwrap_or(below));
        let path = self.options.root.join(below);
        path.to_string_lossy().into_owned()
    }

    fn below_prefix<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        path.strip_prefix(&*self.options.prefix).unwrap_or(path)
    }
}

/// A request's part in the loading of one file.
struct Turn<'a> {
    worker: &'a Worker,
    path: &'a [u8],
    cell: Rc<Loading>,
}

impl<'a> Turn<'a> {
    fn take(worker: &'a Worker, path: &'a [u8]) -> Self {
        let mut loading = worker.loading.borrow_mut();
        let cell = Rc::clone(loading.entry(path.into()).or_default());
        Self { worker, path, cell }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // The map and this: nobody else waits.
        if Rc::strong_count(&self.cell) == 2 {
            self.worker.loading.borrow_mut().remove(self.path);
        }
    }
}

/// Which form is to be sent.
enum Choice {
    Form(Rc<Representation>),
    /// Nothing that is there is accepted, but this is being made.
    Make(Coding, Waiting),
    /// It is made as it is sent, with this memory.
    Stream(Encoding, Option<ConnectionReservation>),
    None,
}

impl Choice {
    fn respond(self, entry: Rc<Entry>, request: Request) -> Answer {
        match self {
            Self::Form(form) => {
                note(&request, || {
                    Step::new(
                        StepKind::Content,
                        form.coding.as_str(),
                        "by accept-encoding",
                    )
                });
                form.respond(&request).into()
            }
            Self::Make(coding, waiting) => make(entry, coding, waiting, request),
            Self::Stream(encoding, memory) => {
                note(&request, || {
                    Step::new(
                        StepKind::Content,
                        encoding.coding.as_str(),
                        "by accept-encoding, compressed as it is sent",
                    )
                });
                stream(&entry, encoding, memory, &request).into()
            }
            Self::None => not_acceptable().into(),
        }
    }
}

/// Responds with a form that is being made for a client that accepts nothing that is there.
fn make(entry: Rc<Entry>, coding: Coding, waiting: Waiting, request: Request) -> Answer {
    let respond = move |entry: &Entry, made: Option<Content>, request: &Request| match made {
        Some(content) => entry.made(content, coding).respond(request),
        None => not_acceptable(),
    };
    match waiting.done() {
        Some(made) => respond(&entry, made, &request).into(),
        None => Answer::later(async move { respond(&entry, waiting.made().await, &request) }),
    }
}

/// Responds with all of a file, compressed as it is sent.
fn stream(
    entry: &Entry,
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

/// Whether a path can be one that an application shows a page for.
fn is_page(path: &[u8]) -> bool {
    let extension = media_type::extension(path);
    let media_type = media_type::of_extension(&extension);
    media_type == "text/html" || !media_type::is_listed(&extension)
}

/// The answer to methods that files have no use for.
fn not_read(request: &Request) -> Response {
    let status = match *request.method() {
        Method::OPTIONS => StatusCode::NO_CONTENT,
        _ => StatusCode::METHOD_NOT_ALLOWED,
    };
    Response::new(status).with_header(&header::ALLOW, &HeaderValue::from_static(ALLOW))
}

fn not_acceptable() -> Response {
    Response::new(StatusCode::NOT_ACCEPTABLE)
        .with_header(&header::VARY, &HeaderValue::from_static("accept-encoding"))
}

/// To the same path with a slash. The path starts with one slash and holds none twice, so the
/// location cannot be taken for another host.
fn add_slash(request: &Request, path: &[u8]) -> Response {
    let mut location = mounted_at(request).to_owned();
    location.push_str(&encode(path));
    location.push('/');
    if let Some(query) = request.query() {
        location.push('?');
        location.push_str(query);
    }
    let mut response = Response::new(StatusCode::MOVED_PERMANENTLY);
    // Encoded, and a query is visible ASCII; there is nothing to refuse.
    let _ = response.headers_mut().try_append("location", location);
    response
}

fn unreadable(path: &[u8], error: &io::Error) -> Response {
    let path = String::from_utf8_lossy(path);
    tracing::error!(%path, %error, "a file could not be read");
    Response::new(StatusCode::INTERNAL_SERVER_ERROR)
}
