//! Static files with a hash in their names, which clients cache for good.
//!
//! ```no_run
//! use apus::App;
//! use apus::assets::Assets;
//!
//! let assets = Assets::folder("public").at("/assets").load()?;
//! // "/assets/app.3f9a2bd0.css" in a release, "/assets/app.css" in a debug build.
//! let address = assets.url("app.css");
//! App::new().mount("/assets", assets).serve("127.0.0.1:8080")?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod manifest;
mod service;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::{HeaderValue, Service, ServiceFactory, header};

use self::manifest::Manifest;
use self::service::AssetsService;
use crate::files::Files;

/// A folder of static files, as a service, and the addresses of what is in it.
///
/// `app.css` is served as `app.3f9a2bd0.css` too, where the middle part is made of its content
/// (SHA-256): with `Cache-Control: public, max-age=31536000, immutable`, as long as the file is the one
/// that was there at the start. Under its own name it is served to be revalidated (`no-cache`); so it
/// is under a name with another hash, as pages ask for it that were made before an update.
///
/// What files name themselves, as `url(logo.svg)` in a style sheet, is found under its own name.
#[derive(Clone)]
pub struct Assets {
    shared: Arc<AssetsState>,
}

struct AssetsState {
    prefix: String,
    manifest: Manifest,
    /// Whether files change while they are served: then addresses have no hash.
    reloads: bool,
    hashed: Files,
    plain: Files,
}

/// Assets before they are looked at; see [`Assets::folder`].
#[derive(Clone)]
#[must_use]
pub struct AssetsBuilder {
    files: Files,
    folder: PathBuf,
    prefix: String,
    reloads: bool,
}

impl Assets {
    /// The files below a folder. Hidden files are none.
    pub fn folder(folder: impl Into<PathBuf>) -> AssetsBuilder {
        let folder = folder.into();
        AssetsBuilder {
            files: Files::new(folder.clone()),
            folder,
            prefix: "/assets".to_owned(),
            reloads: cfg!(debug_assertions),
        }
    }

    /// The address of a file, which is named by its path from the folder: `css/app.css`. `None` if
    /// there is no such file.
    pub fn url(&self, name: &str) -> Option<Cow<'_, str>> {
        let shared = &*self.shared;
        let name = name.trim_start_matches('/');
        if shared.reloads {
            let address = || Cow::Owned(manifest::address(&shared.prefix, name));
            return shared.manifest.is_there(name).then(address);
        }
        shared.manifest.address(name).map(Cow::Borrowed)
    }

    /// All files and their addresses, by name.
    pub fn manifest(&self) -> impl Iterator<Item = (&str, &str)> {
        self.shared.manifest.iter()
    }
}

impl AssetsBuilder {
    /// The path that the assets are mounted at. Default: `/assets`.
    pub fn at(mut self, path: impl Into<String>) -> Self {
        let path: String = path.into();
        self.prefix = path.trim_end_matches('/').to_owned();
        self
    }

    /// Whether this is development: [`Assets::url`] gives plain names, whose files may change at any
    /// time. Default: in debug builds.
    pub fn reload(mut self, reloads: bool) -> Self {
        self.reloads = reloads;
        self
    }

    /// Changes how the files are served: their types, compression, fields.
    pub fn files(mut self, change: impl FnOnce(Files) -> Files) -> Self {
        self.files = change(self.files);
        self
    }

    /// Reads all files once, to know their hashes.
    ///
    /// # Errors
    /// The folder or a file in it cannot be read.
    pub fn load(self) -> io::Result<Assets> {
        let manifest = Manifest::of(self.folder, &self.prefix)?;
        let served = |cache_control: &'static str| {
            self.files.clone().field(
                &header::CACHE_CONTROL,
                &HeaderValue::from_static(cache_control),
            )
        };
        Ok(Assets {
            shared: Arc::new(AssetsState {
                prefix: self.prefix.clone(),
                manifest,
                reloads: self.reloads,
                hashed: served("public, max-age=31536000, immutable"),
                plain: served("no-cache"),
            }),
        })
    }
}

impl ServiceFactory for Assets {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(AssetsService::new(self))
    }
}

impl fmt::Debug for Assets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assets")
            .field("manifest", &self.shared.manifest)
            .field("reloads", &self.shared.reloads)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for AssetsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AssetsBuilder")
            .field("folder", &self.folder)
            .field("prefix", &self.prefix)
            .field("reloads", &self.reloads)
            .finish_non_exhaustive()
    }
}
