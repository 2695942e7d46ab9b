//! A file as it is kept in memory: its forms, and how it is told whether they are still true.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use apus_http::fields::Coding;

use crate::Options;
use crate::content::{Content, Wait};
use crate::lookup::FoundFile;
use crate::representation::{About, Representation};
use crate::tree::Identity;
use crate::variants::{Key, MAX_SOURCE, Source, Variant, Variants};
use apus_media_type as media_type;

/// What was read of a file and its siblings.
pub(crate) struct Loaded {
    content: Content,
    siblings: [Option<Content>; 3],
    is_stable: bool,
}

impl FoundFile {
    /// Reads what there is to read.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the disk would have to be waited for and must not be.
    pub(crate) fn load(&self, wait: Wait) -> io::Result<Loaded> {
        let (content, mut is_stable) = self.file.read(wait)?;
        let mut siblings = [const { None }; 3];
        for (slot, sibling) in siblings.iter_mut().zip(&self.siblings) {
            if let Some(sibling) = sibling {
                let (content, is_same) = sibling.read(wait)?;
                is_stable &= is_same;
                *slot = Some(content);
            }
        }
        Ok(Loaded {
            content,
            siblings,
            is_stable,
        })
    }
}

/// A file in all its forms.
pub(crate) struct Entry {
    /// The path relative to the root.
    pub(crate) path: Vec<u8>,
    identities: [Option<Identity>; 4],
    identity: Identity,
    is_settled: bool,
    /// Whether it may be kept: it is in memory, and did not change while it was read.
    pub(crate) is_cacheable: bool,
    /// When it was last known to be true.
    pub(crate) checked: Cell<Instant>,
    about: About,
    pub(crate) plain: Rc<Representation>,
    coded: RefCell<[Coded; 3]>,
}

/// The longest text that is compressed as it is sent; what is longer is for those who want to fetch it
/// in parts, or again from where they were.
const MAX_STREAMED: u64 = 32 << 20;

/// One compressed form.
enum Coded {
    /// There is none and will be none.
    Never,
    /// It is made anew each time that it is sent.
    Streamed,
    /// It could be made.
    Possible,
    /// It is being made.
    Awaited(Arc<Variant>),
    Ready(Rc<Representation>),
}

/// What there is of a compressed form.
pub(crate) enum Form {
    Ready(Rc<Representation>),
    /// It was not ready before, but is now: the entry weighs more.
    Arrived(Rc<Representation>),
    Possible,
    /// It is made as it is sent.
    Streamed,
    Never,
}

impl Entry {
    pub(crate) fn new(options: &Options, found: FoundFile, loaded: Loaded, now: Instant) -> Self {
        let identities = found.identities();
        let is_settled = identities.iter().flatten().all(Identity::is_settled);
        let FoundFile { path, file, .. } = found;
        let is_in_memory = matches!(loaded.content, Content::Memory { .. });
        // What is read later, from the file, must still be what the metadata say.
        let length = loaded.content.len();
        let may_compress = options.is_compressible(&path)
            && length >= options.compression.min_length.max(1)
            && length <= MAX_STREAMED;
        let is_kept = length <= MAX_SOURCE;
        let may_compress = may_compress && (!is_kept || is_in_memory || is_settled);
        let is_possible = |coding| may_compress && options.compression.allows(coding);
        let is_negotiated =
            loaded.siblings.iter().any(Option::is_some) || Coding::ALL.into_iter().any(is_possible);
        let about = options.about(&path, is_negotiated);
        let mut coded = [const { Coded::Never }; 3];
        let codings = Coding::ALL.into_iter().zip(loaded.siblings);
        for (slot, ((coding, sibling), identity)) in coded.iter_mut().zip(codings.zip(&identities))
        {
            match (sibling, identity) {
                (Some(content), Some(identity)) => {
                    let form = Representation::new(&about, content, coding, identity);
                    *slot = Coded::Ready(Rc::new(form));
                }
                _ if is_possible(coding) && is_kept => *slot = Coded::Possible,
                _ if is_possible(coding) => *slot = Coded::Streamed,
                _ => {}
            }
        }
        let plain = Representation::new(&about, loaded.content, Coding::Identity, &file.identity);
        Self {
            path,
            identities,
            identity: file.identity,
            is_settled,
            is_cacheable: is_in_memory && loaded.is_stable,
            checked: Cell::new(now),
            about,
            plain: Rc::new(plain),
            coded: RefCell::new(coded),
        }
    }

    /// Whether there are, or can be, forms to choose from.
    pub(crate) fn is_negotiated(&self) -> bool {
        self.about.is_negotiated
    }

    /// Whether what was found is what this was made from.
    pub(crate) fn is_made_from(&self, found: &FoundFile) -> bool {
        self.is_settled && self.path == found.path && self.identities == found.identities()
    }

    /// What this costs in memory, in bytes.
    pub(crate) fn weight(&self) -> u64 {
        let coded = self.coded.borrow();
        let forms = coded.iter().map(|coded| match coded {
            Coded::Ready(form) => form.weight(),
            _ => 0,
        });
        forms.fold(self.plain.weight(), u64::saturating_add)
    }

    /// The form in a coding; with `variants`, it is to be made if it can be.
    pub(crate) fn form(&self, coding: Coding, variants: Option<&Arc<Variants>>) -> Form {
        let mut coded = self.coded.borrow_mut();
        let Some(slot) = coded.get_mut(coding as usize) else {
            return Form::Never;
        };
        if matches!(slot, Coded::Possible)
            && let Some(variants) = variants
            && let Some(variant) = variants.request(self.key(coding), self.source())
        {
            *slot = Coded::Awaited(variant);
        }
        match slot {
            Coded::Ready(form) => Form::Ready(Rc::clone(form)),
            Coded::Never => Form::Never,
            Coded::Streamed => Form::Streamed,
            Coded::Possible => Form::Possible,
            Coded::Awaited(variant) => match variant.done() {
                None => Form::Possible,
                Some(None) => {
                    *slot = Coded::Never;
                    Form::Never
                }
                Some(Some(content)) => {
                    let form = Rc::new(self.made(content, coding));
                    *slot = Coded::Ready(Rc::clone(&form));
                    Form::Arrived(form)
                }
            },
        }
    }

    /// A form from its content.
    pub(crate) fn made(&self, content: Content, coding: Coding) -> Representation {
        Representation::new(&self.about, content, coding, &self.identity)
    }

    /// What variants of it are known by.
    pub(crate) fn key(&self, coding: Coding) -> Key {
        Key {
            identity: self.identity,
            hash: match &self.plain.content {
                Content::Memory { hash, .. } => *hash,
                Content::File { .. } => 0,
            },
            coding,
        }
    }

    /// What compression reads.
    pub(crate) fn source(&self) -> Source {
        match &self.plain.content {
            Content::Memory { bytes, .. } => Source::Memory(bytes.clone()),
            Content::File { file, len } => Source::File(Arc::clone(file), *len),
        }
    }
}

impl Options {
    fn about(&self, path: &[u8], is_negotiated: bool) -> About {
        let mut media_type = self.media_type(path).to_owned();
        if let Some(charset) = &self.charset
            && media_type::has_charset(&media_type)
        {
            media_type.push_str("; charset=");
            media_type.push_str(charset);
        }
        let absolute = [b"/", path].concat();
        let cache_control = self
            .cache_control
            .iter()
            .find(|(pattern, _)| pattern.matches(&absolute))
            .map(|(_, value)| value.as_bytes().into());
        About {
            media_type,
            is_negotiated,
            cache_control,
            extra: self.headers.clone(),
        }
    }
}
