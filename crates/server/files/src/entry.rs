//! A file in memory with its compressed variants, and the check whether it is still current.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use apus_compress::{gunzip, media_type};
use apus_http::fields::Coding;
use bytes::Bytes;

use crate::FilesOptions;
use crate::body::{DiskWait, FileBytes};
use crate::changes::CheckTime;
use crate::path_resolver::FileWithSiblings;
use crate::representation::{FileHeaders, Representation};
use crate::tree::FileIdentity;
use crate::variants::{MAX_SOURCE, Variant, VariantKey, VariantSource, VariantStore};

/// The bytes of a file and of its precompressed siblings.
pub(crate) struct LoadedFile {
    body: FileBytes,
    siblings: [Option<FileBytes>; 3],
    is_stable: bool,
}

impl FileWithSiblings {
    /// Reads the file and its siblings.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if `wait` forbids to wait for the disk.
    pub(crate) fn load(&self, wait: DiskWait) -> io::Result<LoadedFile> {
        let (body, mut is_stable) = self.file.read(wait)?;
        let mut siblings = [const { None }; 3];
        for (slot, sibling) in siblings.iter_mut().zip(&self.siblings) {
            if let Some(sibling) = sibling {
                let (body, is_unchanged) = sibling.read(wait)?;
                is_stable &= is_unchanged;
                *slot = Some(body);
            }
        }
        Ok(LoadedFile {
            body,
            siblings,
            is_stable,
        })
    }
}

/// A file with its compressed variants.
pub(crate) struct FileEntry {
    /// The path relative to the root.
    pub(crate) path: Vec<u8>,
    identities: [Option<FileIdentity>; 4],
    identity: FileIdentity,
    is_settled: bool,
    /// Whether it may be cached: it is in memory, and did not change while it was read.
    pub(crate) is_cacheable: bool,
    /// When it was last known to be current.
    pub(crate) checked: Cell<CheckTime>,
    headers: FileHeaders,
    /// The file as it is stored, mostly in no coding.
    pub(crate) plain: Rc<Representation>,
    /// The file without the coding in which it is stored, once a client needs that.
    decoded: OnceCell<Option<Rc<Representation>>>,
    slots: RefCell<[VariantSlot; 3]>,
}

/// The longest text that is compressed while it is sent. Clients may want to fetch a longer one in
/// parts, or resume it.
const MAX_STREAMED: u64 = 32 << 20;

/// The most bytes of a file that are decoded, on a worker, for clients without its coding.
const MAX_DECODED: u64 = 2 << 20;

/// The first bytes of a file in gzip (RFC 1952 section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The state of one compressed variant.
enum VariantSlot {
    /// There is none, and none will be made.
    Never,
    /// It is compressed each time that it is sent.
    Streamed,
    /// It can be made.
    Possible,
    /// It is being made.
    Pending(Arc<Variant>),
    Ready(Rc<Representation>),
}

/// The availability of a compressed variant.
pub(crate) enum VariantState {
    Ready(Rc<Representation>),
    /// It has become ready since the last request, so that the entry takes more memory.
    NewlyReady(Rc<Representation>),
    Possible,
    /// It is compressed while it is sent.
    Streamed,
    Never,
}

impl FileEntry {
    pub(crate) fn new(
        options: &FilesOptions,
        found: FileWithSiblings,
        loaded: LoadedFile,
        checked: CheckTime,
    ) -> Self {
        let identities = found.identities();
        let is_settled = identities.iter().flatten().all(FileIdentity::is_settled);
        let FileWithSiblings { path, file, .. } = found;
        let is_in_memory = matches!(loaded.body, FileBytes::Memory { .. });
        // Bytes that are read from the file later must still match the metadata.
        let length = loaded.body.len();
        let may_compress = options.is_compressible(&path)
            && length >= options.compression.min_length.max(1)
            && length <= MAX_STREAMED;
        let is_stored = length <= MAX_SOURCE;
        let may_compress = may_compress && (!is_stored || is_in_memory || is_settled);
        let is_possible = |coding| may_compress && options.compression.allows(coding);
        // The name may be wrong, which the first bytes show if they are in memory.
        let is_gzip = match &loaded.body {
            FileBytes::Memory { bytes, .. } => bytes.starts_with(&GZIP),
            FileBytes::File { .. } => true,
        };
        let stored = options.stored_coding(&path).filter(|_| is_gzip);
        let is_negotiated = stored.is_some()
            || loaded.siblings.iter().any(Option::is_some)
            || Coding::ALL.into_iter().any(is_possible);
        let headers = options.headers(&path, is_negotiated);
        let mut slots = [const { VariantSlot::Never }; 3];
        let codings = Coding::ALL.into_iter().zip(loaded.siblings);
        for (slot, ((coding, sibling), identity)) in slots.iter_mut().zip(codings.zip(&identities))
        {
            match (sibling, identity) {
                (Some(body), Some(identity)) => {
                    let variant = Representation::new(&headers, body, coding, identity);
                    *slot = VariantSlot::Ready(Rc::new(variant));
                }
                _ if is_possible(coding) && is_stored => *slot = VariantSlot::Possible,
                _ if is_possible(coding) => *slot = VariantSlot::Streamed,
                _ => {}
            }
        }
        let coding = stored.unwrap_or(Coding::Identity);
        let plain = Representation::new(&headers, loaded.body, coding, &file.identity);
        Self {
            path,
            identities,
            identity: file.identity,
            is_settled,
            is_cacheable: is_in_memory && loaded.is_stable,
            checked: Cell::new(checked),
            headers,
            plain: Rc::new(plain),
            decoded: OnceCell::new(),
            slots: RefCell::new(slots),
        }
    }

    /// Whether there are, or can be, compressed variants.
    pub(crate) fn is_negotiated(&self) -> bool {
        self.headers.is_negotiated
    }

    /// Whether any later change is visible in the metadata.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Whether the found file is the version that this was made from.
    pub(crate) fn is_made_from(&self, found: &FileWithSiblings) -> bool {
        self.is_settled && self.path == found.path && self.identities == found.identities()
    }

    /// The memory that it takes, in bytes.
    pub(crate) fn weight(&self) -> u64 {
        let slots = self.slots.borrow();
        let weights = slots.iter().map(|slot| match slot {
            VariantSlot::Ready(variant) => variant.weight(),
            _ => 0,
        });
        let decoded = self.decoded.get().and_then(Option::as_ref);
        let decoded = decoded.map_or(0, |decoded| decoded.weight());
        let own = self.plain.weight().saturating_add(decoded);
        weights.fold(own, u64::saturating_add)
    }

    /// The variant in a coding. With `variants`, a missing one is requested if it can be made.
    pub(crate) fn variant(
        &self,
        coding: Coding,
        variants: Option<&Arc<VariantStore>>,
    ) -> VariantState {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(coding as usize) else {
            return VariantState::Never;
        };
        if matches!(slot, VariantSlot::Possible)
            && let Some(variants) = variants
            && let Some(variant) = variants.request(self.key(coding), self.source())
        {
            *slot = VariantSlot::Pending(variant);
        }
        match slot {
            VariantSlot::Ready(variant) => VariantState::Ready(Rc::clone(variant)),
            VariantSlot::Never => VariantState::Never,
            VariantSlot::Streamed => VariantState::Streamed,
            VariantSlot::Possible => VariantState::Possible,
            VariantSlot::Pending(variant) => match variant.result() {
                None => VariantState::Possible,
                Some(None) => {
                    *slot = VariantSlot::Never;
                    VariantState::Never
                }
                Some(Some(body)) => {
                    let variant = Rc::new(self.representation(body, coding));
                    *slot = VariantSlot::Ready(Rc::clone(&variant));
                    VariantState::NewlyReady(variant)
                }
            },
        }
    }

    /// The file without the coding in which it is stored; `None` if that takes too much time or
    /// memory, or the file is damaged.
    pub(crate) fn decoded(&self) -> Option<Rc<Representation>> {
        let decode = || {
            let FileBytes::Memory { bytes, .. } = &self.plain.body else {
                return None;
            };
            let decoded = gunzip(bytes, MAX_DECODED)?;
            let body = FileBytes::from(Bytes::from(decoded));
            Some(Rc::new(self.representation(body, Coding::Identity)))
        };
        self.decoded.get_or_init(decode).clone()
    }

    /// The representation of a compressed variant.
    pub(crate) fn representation(&self, body: FileBytes, coding: Coding) -> Representation {
        Representation::new(&self.headers, body, coding, &self.identity)
    }

    /// The key of a variant in the variant store.
    pub(crate) fn key(&self, coding: Coding) -> VariantKey {
        VariantKey {
            identity: self.identity,
            hash: match &self.plain.body {
                FileBytes::Memory { hash, .. } => *hash,
                FileBytes::File { .. } => 0,
            },
            coding,
        }
    }

    /// The bytes to compress.
    pub(crate) fn source(&self) -> VariantSource {
        match &self.plain.body {
            FileBytes::Memory { bytes, .. } => VariantSource::Memory(bytes.clone()),
            FileBytes::File { file, len } => VariantSource::File(Arc::clone(file), *len),
        }
    }
}

impl FilesOptions {
    fn headers(&self, path: &[u8], is_negotiated: bool) -> FileHeaders {
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
        FileHeaders {
            media_type,
            is_negotiated,
            cache_control,
            extra: self.headers.clone(),
        }
    }
}
