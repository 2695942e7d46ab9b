//! Resolution of the path of a request to a file, a folder or a program.

use apus_http::StatusCode;
use apus_http::fields::Coding;
use rustix::io::Errno;

use crate::FilesOptions;
use crate::body::UnreadFile;
use crate::tree::{FileIdentity, RootFolder, status_of};
use crate::try_files::LastAction;
use apus_compress::media_type;

/// The result of resolving a path.
pub(crate) enum ResolvedPath {
    /// A file to send.
    File(Box<FileWithSiblings>),
    /// A folder without an index that may be listed, by its path relative to the root.
    Listing(Vec<u8>),
    /// A folder whose path lacks the slash at its end.
    MissingSlash,
    /// A folder without an index that may not be listed.
    NoIndex,
    /// A program, by its path relative to the root.
    Program(Vec<u8>),
    /// No file, or a file that must not be visible.
    NotFound,
    /// A file that cannot or must not be read.
    Error(StatusCode),
    /// The last parameter of `try_files`.
    Last(LastAction),
}

/// An open file, with its precompressed siblings that may be sent instead.
pub(crate) struct FileWithSiblings {
    /// The path relative to the root.
    pub(crate) path: Vec<u8>,
    pub(crate) file: UnreadFile,
    pub(crate) siblings: [Option<UnreadFile>; 3],
}

impl FileWithSiblings {
    pub(crate) fn identities(&self) -> [Option<FileIdentity>; 4] {
        let [brotli, zstd, gzip] = &self.siblings;
        let identity = |unread: &Option<UnreadFile>| unread.as_ref().map(|unread| unread.identity);
        [
            identity(brotli),
            identity(zstd),
            identity(gzip),
            Some(self.file.identity),
        ]
    }
}

/// The suffixes of precompressed siblings.
const SUFFIXES: [(Coding, &[u8]); 3] = [
    (Coding::Brotli, b".br"),
    (Coding::Zstd, b".zst"),
    (Coding::Gzip, b".gz"),
];

/// Extensions of include files, and of copies by editors, upgrades and people.
const LEFTOVER_EXTENSIONS: &[&str] = &[
    "inc", "bak", "backup", "old", "orig", "save", "swp", "swo", "swn",
];

/// Prefixes of media types that contain no source code, whatever the file name is.
const SOURCELESS_TYPES: &[&str] = &["image/", "video/", "audio/", "font/"];

/// Resolves paths in one root.
pub(crate) struct PathResolver<'a> {
    pub(crate) options: &'a FilesOptions,
    pub(crate) root: &'a RootFolder,
}

impl PathResolver<'_> {
    /// Resolves `path`, which is in normal form.
    pub(crate) fn resolve(&self, path: &[u8]) -> ResolvedPath {
        let Some(path) = self.below_prefix(path) else {
            return ResolvedPath::NotFound;
        };
        let Some(list) = &self.options.try_files else {
            return self.resolve_below(path);
        };
        for (candidate, is_folder) in list.candidates(path) {
            let is_same = path.strip_suffix(b"/").unwrap_or(path) == candidate;
            match self.resolve_below(&candidate) {
                ResolvedPath::Program(path) if !is_folder => return ResolvedPath::Program(path),
                ResolvedPath::File(file) if !(is_folder || is_same && path.ends_with(b"/")) => {
                    return ResolvedPath::File(file);
                }
                ResolvedPath::MissingSlash if is_folder => {
                    if is_same && !path.ends_with(b"/") {
                        return ResolvedPath::MissingSlash;
                    }
                    match self.resolve_below(&[&*candidate, b"/"].concat()) {
                        ResolvedPath::NoIndex | ResolvedPath::NotFound => {}
                        found => return found,
                    }
                }
                ResolvedPath::Error(status) => return ResolvedPath::Error(status),
                _ => {}
            }
        }
        ResolvedPath::Last(list.last_action())
    }

    /// The path without the prefix of this tree; it starts with a slash or is empty.
    fn below_prefix<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        path.strip_prefix(&*self.options.prefix)
            .filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }

    /// Resolves a path below the root.
    pub(crate) fn resolve_below(&self, path: &[u8]) -> ResolvedPath {
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        let name = relative.strip_suffix(b"/").unwrap_or(relative);
        if self.is_refused(name) {
            return if self.options.runs_programs && self.is_program(name) {
                ResolvedPath::Program(name.to_vec())
            } else {
                ResolvedPath::NotFound
            };
        }
        let opened = match self.root.open(name) {
            Ok(opened) => opened,
            Err(errno) => return error_of(errno),
        };
        if opened.metadata.is_file() {
            return if path.ends_with(b"/") {
                ResolvedPath::NotFound
            } else {
                self.with_siblings(name, UnreadFile::new(opened))
            };
        }
        if !opened.metadata.is_dir() {
            return ResolvedPath::NotFound;
        }
        if !path.ends_with(b"/") {
            return ResolvedPath::MissingSlash;
        }
        for index in &self.options.index {
            let mut file = name.to_vec();
            if !file.is_empty() {
                file.push(b'/');
            }
            file.extend_from_slice(index.as_bytes());
            if self.is_refused(&file) {
                if self.options.runs_programs && self.is_program(&file) {
                    return ResolvedPath::Program(file);
                }
                continue;
            }
            match self.root.open(&file) {
                Ok(opened) if opened.metadata.is_file() => {
                    return self.with_siblings(&file, UnreadFile::new(opened));
                }
                Ok(_) => {}
                Err(errno) => match error_of(errno) {
                    ResolvedPath::NotFound => {}
                    failed => return failed,
                },
            }
        }
        if self.options.listing {
            ResolvedPath::Listing(name.to_vec())
        } else {
            ResolvedPath::NoIndex
        }
    }

    fn with_siblings(&self, path: &[u8], file: UnreadFile) -> ResolvedPath {
        let mut siblings = [const { None }; 3];
        if self.options.precompressed && self.options.stored_coding(path).is_none() {
            for (slot, (_, suffix)) in siblings.iter_mut().zip(SUFFIXES) {
                *slot = self
                    .root
                    .open(&[path, suffix].concat())
                    .ok()
                    .filter(|opened| opened.metadata.is_file() && opened.metadata.len() > 0)
                    .map(UnreadFile::new)
                    .filter(|sibling| sibling.identity.modified() >= file.identity.modified());
            }
        }
        ResolvedPath::File(Box::new(FileWithSiblings {
            path: path.to_vec(),
            file,
            siblings,
        }))
    }

    /// Whether there is a program at a path that is not served as a file.
    fn is_program(&self, relative: &[u8]) -> bool {
        self.options.is_source(relative)
            && !self.is_hidden(relative)
            && (self.root.metadata(relative)).is_ok_and(|metadata| metadata.is_file())
    }

    /// Whether a path is never served as a file.
    fn is_refused(&self, relative: &[u8]) -> bool {
        self.is_hidden(relative)
            || self.options.is_source(relative)
            || self.options.is_leftover(relative)
    }

    fn is_hidden(&self, relative: &[u8]) -> bool {
        let is_hidden = |(at, name): (usize, &[u8])| {
            // RFC 8615: the one public folder whose name begins with a dot.
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

impl FilesOptions {
    /// Whether a name belongs to a program, whose source is never sent.
    pub(crate) fn is_source(&self, path: &[u8]) -> bool {
        // Trailing characters of editor copies, and those that some file systems ignore.
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

    /// Whether a name belongs to a copy of a program or of an include file, in a tree with
    /// programs: it contains source code, and no service runs it.
    pub(crate) fn is_leftover(&self, path: &[u8]) -> bool {
        if !self.has_programs {
            return false;
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let len = name.iter().rev().take_while(|byte| b"~#. ".contains(byte));
        let whole = name.get(..name.len().saturating_sub(len.count()));
        let mut extensions = whole.unwrap_or_default().split(|byte| *byte == b'.');
        // The part before the first dot is no extension.
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
        if LEFTOVER_EXTENSIONS
            .iter()
            .any(|known| known.as_bytes().eq_ignore_ascii_case(last))
        {
            return true;
        }
        // An image may be named after a program.
        let kind = self.media_type(name);
        is_of_program && !SOURCELESS_TYPES.iter().any(|of| kind.starts_with(of))
    }

    /// Whether a path is protected.
    pub(crate) fn is_protected(&self, relative: &[u8]) -> bool {
        if self.protected.is_empty() {
            return false;
        }
        let path = [b"/", relative].concat();
        self.protected.iter().any(|glob| glob.matches(&path))
    }

    /// Whether a path goes to the service that runs programs before any lookup: it ends like the
    /// name of a program, or, with `try_files`, contains one that gets the rest of the path.
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
        self.stored_coding(path).is_none()
            && media_type::is_compressible(self.media_type(path).as_bytes())
    }

    /// The media type of a file of this name, without its charset.
    pub(crate) fn media_type(&self, path: &[u8]) -> &str {
        let extension = media_type::extension(path);
        match self.media_types.get(&extension) {
            Some(media_type) => media_type,
            None => media_type::of_extension(&extension),
        }
    }

    /// The content coding in which a file of this name is stored, so that its media type describes
    /// what is in it. An archive is what its name says, and has none.
    pub(crate) fn stored_coding(&self, path: &[u8]) -> Option<Coding> {
        let extension = media_type::extension(path);
        let is_image = || self.media_type(path) == "image/svg+xml";
        (media_type::is_stored_in_gzip(&extension) && is_image()).then_some(Coding::Gzip)
    }
}

/// The result for a failure to open a file. A path that must not be visible looks like a missing
/// one; a failure of the system does not, because caches would keep that the file is gone.
pub(crate) fn error_of(errno: Errno) -> ResolvedPath {
    match status_of(errno) {
        StatusCode::NOT_FOUND => ResolvedPath::NotFound,
        status => ResolvedPath::Error(status),
    }
}
