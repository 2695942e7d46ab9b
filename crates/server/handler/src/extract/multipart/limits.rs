//! `UploadLimits`: the limits of a form with files.

use std::path::PathBuf;
use std::sync::Arc;

use apus_http::{Request, ResponseFuture};

use crate::body_limit::BodyLimit;
use crate::middleware::{Middleware, Next};

/// The limits of [`super::Multipart`]. A layer, for routes with uploads:
///
/// ```
/// # use apus_handler::extract::{Multipart, UploadLimits};
/// # use apus_handler::{HandlerExt, Result};
/// async fn upload(mut form: Multipart) -> Result<String> {
///     let mut names = String::new();
///     while let Some(part) = form.next().await? {
///         names += part.name();
///     }
///     Ok(names)
/// }
///
/// let upload = upload.with(UploadLimits::new().total(1 << 30));
/// # let _ = upload;
/// ```
///
/// The total replaces the [`BodyLimit`]s further out.
#[derive(Clone, Debug)]
pub struct UploadLimits {
    pub(super) total: u64,
    pub(super) file: u64,
    pub(super) parts: usize,
    pub(super) in_memory: usize,
    pub(super) folder: Option<PathBuf>,
}

impl Default for UploadLimits {
    fn default() -> Self {
        Self::new()
    }
}

impl UploadLimits {
    /// 32 MiB in total, without a limit for one file, in up to 100 parts. Files longer than 64 KiB are written
    /// to the temporary folder of the system.
    pub fn new() -> Self {
        Self {
            total: 32 * 1024 * 1024,
            file: u64::MAX,
            parts: 100,
            in_memory: 64 * 1024,
            folder: None,
        }
    }

    /// The longest form, in bytes.
    #[must_use]
    pub fn total(mut self, bytes: u64) -> Self {
        self.total = bytes;
        self
    }

    /// The longest file, in bytes.
    #[must_use]
    pub fn file(mut self, bytes: u64) -> Self {
        self.file = bytes;
        self
    }

    /// The most parts: files and fields.
    #[must_use]
    pub fn parts(mut self, count: usize) -> Self {
        self.parts = count;
        self
    }

    /// The longest file that is kept in memory, in bytes.
    #[must_use]
    pub fn in_memory(mut self, bytes: usize) -> Self {
        self.in_memory = bytes;
        self
    }

    /// The folder for longer files. They have no name in it and are removed when they are dropped or the
    /// process ends in any way. Use one on the file system that they are saved to.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }
}

impl Middleware<()> for UploadLimits {
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        BodyLimit::replace_bytes(&request, self.total);
        request.extensions_mut().insert(Arc::new(self.clone()));
        next.call(request)
    }
}
