//! From the path of a request to what is there: a file, a folder, or nothing that is to be seen.

use apus_http::StatusCode;
use apus_http::fields::Coding;
use rustix::io::Errno;

use crate::Options;
use crate::content::Unread;
use crate::tree::{Identity, Root};
use crate::try_files::Last;
use apus_media_type as media_type;

/// What a path leads to.
pub(crate) enum Found {
    /// A file to be sent.
    File(Box<FoundFile>),
    /// A folder without an index, at this path relative to the root, that may be listed.
    Listing(Vec<u8>),
    /// A folder, asked for without the slash at its end.
    Unslashed,
    /// A folder without an index that may not be listed.
    NoIndex,
    /// A program, at this path relative to the root.
    Program(Vec<u8>),
    /// Nothing, or nothing that is to be seen.
    Missing,
    /// Something that cannot be read now, or must not be.
    Failed(StatusCode),
    /// The last resort of `try_files`.
    Last(Last),
}

/// A file, opened, with the compressed siblings that may be sent in its place.
pub(crate) struct FoundFile {
    /// The path relative to the root.
    pub(crate) path: Vec<u8>,
    pub(crate) file: Unread,
    pub(crate) siblings: [Option<Unread>; 3],
}

impl FoundFile {
    pub(crate) fn identities(&self) -> [Option<Identity>; 4] {
        let [brotli, zstd, gzip] = &self.siblings;
        let identity = |unread: &Option<Unread>| unread.as_ref().map(|unread| unread.identity);
        [
            identity(brotli),
            identity(zstd),
            identity(gzip),
            Some(self.file.identity),
        ]
    }
}

/// What stands at the end of the name of a compressed sibling.
const SUFFIXES: [(Coding, &[u8]); 3] = [
    (Coding::Brotli, b".br"),
    (Coding::Zstd, b".zst"),
    (Coding::Gzip, b".gz"),
];

/// How names end of what programs include, and of copies of editors, upgrades and people.
const REMNANTS: &[&str] = &[
    "inc", "bak", "backup", "old", "orig", "save", "swp", "swo", "swn",
];

/// How media types begin of what has no source in it, whatever it is called.
const PICTURES: &[&str] = &["image/", "video/", "audio/", "font/"];

/// Looks up paths in one root.
pub(crate) struct Lookup<'a> {
    pub(crate) options: &'a Options,
    pub(crate) root: &'a Root,
}

impl Lookup<'_> {
    /// What `path`, which is in normal form, leads to.
    pub(crate) fn find(&self, path: &[u8], query: Option<&str>) -> Found {
        let whole = path;
        let Some(path) = self.below_prefix(whole) else {
            return Found::Missing;
        };
        let Some(list) = &self.options.try_files else {
            return self.find_below(path);
        };
        for (attempt, is_folder) in list.attempts(path) {
            let is_same = path.strip_suffix(b"/").unwrap_or(path) == attempt;
            match self.find_below(&attempt) {
                Found::Program(path) if !is_folder => return Found::Program(path),
                Found::File(file) if !(is_folder || is_same && path.ends_with(b"/")) => {
                    return Found::File(file);
                }
                Found::Unslashed if is_folder => {
                    if is_same && !path.ends_with(b"/") {
                        return Found::Unslashed;
                    }
                    match self.find_below(&[&*attempt, b"/"].concat()) {
                        Found::NoIndex | Found::Missing => {}
                        found => return found,
                    }
                }
                Found::Failed(status) => return Found::Failed(status),
                _ => {}
            }
        }
        Found::Last(list.last(whole, query))
    }

    /// The path without what this tree is mounted under; it starts with a slash or is empty.
    fn below_prefix<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        path.strip_prefix(&*self.options.prefix)
            .filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }

    /// What is at a path below the root.
    pub(crate) fn find_below(&self, path: &[u8]) -> Found {
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        let name = relative.strip_suffix(b"/").unwrap_or(relative);
        if self.is_refused(name) {
            return match self.options.runs_programs && self.is_program(name) {
                true => Found::Program(name.to_vec()),
                false => Found::Missing,
            };
        }
        let opened = match self.root.open(name) {
            Ok(opened) => opened,
            Err(errno) => return failure(errno),
        };
        if opened.metadata.is_file() {
            return match path.ends_with(b"/") {
                true => Found::Missing,
                false => self.with_siblings(name, Unread::new(opened)),
            };
        }
        if !opened.metadata.is_dir() {
            return Found::Missing;
        }
        if !path.ends_with(b"/") {
            return Found::Unslashed;
        }
        for index in &self.options.index {
            let mut file = name.to_vec();
            if !file.is_empty() {
                file.push(b'/');
            }
            file.extend_from_slice(index.as_bytes());
            if self.is_refused(&file) {
                if self.options.runs_programs && self.is_program(&file) {
                    return Found::Program(file);
                }
                continue;
            }
            match self.root.open(&file) {
                Ok(opened) if opened.metadata.is_file() => {
                    return self.with_siblings(&file, Unread::new(opened));
                }
                Ok(_) => {}
                Err(errno) => match failure(errno) {
                    Found::Missing => {}
                    failed => return failed,
                },
            }
        }
        match self.options.listing {
            true => Found::Listing(name.to_vec()),
            false => Found::NoIndex,
        }
    }

    fn with_siblings(&self, path: &[u8], file: Unread) -> Found {
        let mut siblings = [const { None }; 3];
        if self.options.precompressed && self.options.is_compressible(path) {
            for (slot, (_, suffix)) in siblings.iter_mut().zip(SUFFIXES) {
                *slot = self
                    .root
                    .open(&[path, suffix].concat())
                    .ok()
                    .filter(|opened| opened.metadata.is_file() && opened.metadata.len() > 0)
                    .map(Unread::new)
                    .filter(|sibling| sibling.identity.modified() >= file.identity.modified());
            }
        }
        Found::File(Box::new(FoundFile {
            path: path.to_vec(),
            file,
            siblings,
        }))
    }

    /// Whether there is a program at a path that is refused as a file.
    fn is_program(&self, relative: &[u8]) -> bool {
        self.options.is_source(relative)
            && !self.is_hidden(relative)
            && (self.root.metadata(relative)).is_ok_and(|metadata| metadata.is_file())
    }

    /// Whether a path is one that nobody is to know of.
    fn is_refused(&self, relative: &[u8]) -> bool {
        self.is_hidden(relative)
            || self.options.is_source(relative)
            || self.options.is_remnant(relative)
    }

    fn is_hidden(&self, relative: &[u8]) -> bool {
        let is_hidden = |(at, name): (usize, &[u8])| {
            // RFC 8615: the one folder with a dot that is for the public.
            name.starts_with(b".") && !(at == 0 && name == b".well-known")
        };
        (!self.options.hidden_files
            && relative
                .split(|byte| *byte == b'/')
                .enumerate()
                .any(is_hidden))
            || self.options.is_protected(relative)
    }
}

impl Options {
    /// Whether a name is one of a program, whose source is nobody's business.
    pub(crate) fn is_source(&self, path: &[u8]) -> bool {
        // A copy of an editor; and what is the same name to some file systems.
        let len = path.iter().rev().take_while(|byte| b"~. ".contains(byte));
        let len = path.len().saturating_sub(len.count());
        let path = path.get(..len).unwrap_or_default();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let Some(dot) = memchr::memrchr(b'.', name) else {
            return false;
        };
        let extension = name.get(dot.saturating_add(1)..).unwrap_or_default();
        let mut known = self.source_extensions.iter();
        known.any(|known| known.as_bytes().eq_ignore_ascii_case(extension))
    }

    /// Whether a name is one of a copy of a program, or of what programs include, in a tree that has
    /// programs: their source is in it, and nothing runs it.
    pub(crate) fn is_remnant(&self, path: &[u8]) -> bool {
        if !self.has_programs {
            return false;
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let len = name.iter().rev().take_while(|byte| b"~#. ".contains(byte));
        let whole = name.get(..name.len().saturating_sub(len.count()));
        let mut extensions = whole.unwrap_or_default().split(|byte| *byte == b'.');
        // What stands before the first dot is no extension.
        extensions.next();
        let mut last: &[u8] = b"";
        let mut is_of_program = false;
        for extension in extensions {
            // `php_old`, `php-dist`, `php 2`.
            let end = (extension.iter()).position(|byte| !byte.is_ascii_alphanumeric());
            last = extension
                .get(..end.unwrap_or(extension.len()))
                .unwrap_or_default();
            let mut known = self.source_extensions.iter();
            is_of_program |= known.any(|known| known.as_bytes().eq_ignore_ascii_case(last));
        }
        if REMNANTS
            .iter()
            .any(|known| known.as_bytes().eq_ignore_ascii_case(last))
        {
            return true;
        }
        // A picture may be called after a program.
        let kind = self.media_type(name);
        is_of_program && !PICTURES.iter().any(|of| kind.starts_with(of))
    }

    /// Whether a path is kept from everybody.
    pub(crate) fn is_protected(&self, relative: &[u8]) -> bool {
        if self.protected.is_empty() {
            return false;
        }
        let path = [b"/", relative].concat();
        self.protected.iter().any(|glob| glob.matches(&path))
    }

    /// Whether a path is for the service that runs programs before anything is looked for: it ends like
    /// the name of one, or has one in its middle that is given the rest of the path, and there is a list
    /// of other files that would go before.
    pub(crate) fn names_program(&self, path: &[u8]) -> bool {
        if !self.runs_programs || memchr::memchr(b'.', path).is_none() {
            return false;
        }
        self.is_source(path.strip_suffix(b"/").unwrap_or(path))
            || (self.try_files.is_some()
                && path
                    .split(|byte| *byte == b'/')
                    .any(|name| self.is_source(name)))
    }

    /// Whether a file of this name is worth compressing.
    pub(crate) fn is_compressible(&self, path: &[u8]) -> bool {
        media_type::is_compressible(self.media_type(path).as_bytes())
    }

    /// The media type of a file of this name, without its charset.
    pub(crate) fn media_type(&self, path: &[u8]) -> &str {
        let extension = media_type::extension(path);
        match self.media_types.get(&extension) {
            Some(media_type) => media_type,
            None => media_type::of_extension(&extension),
        }
    }
}

/// What a failure to open is to the client. What is refused looks like what is not there.
fn failure(errno: Errno) -> Found {
    match errno {
        Errno::ACCESS => Found::Failed(StatusCode::FORBIDDEN),
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => {
            Found::Failed(StatusCode::SERVICE_UNAVAILABLE)
        }
        Errno::IO => Found::Failed(StatusCode::INTERNAL_SERVER_ERROR),
        _ => Found::Missing,
    }
}
