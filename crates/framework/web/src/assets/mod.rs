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
//! # Ok::<(), apus::StartError>(())
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

/// A service that serves a folder of static files, and the URLs of these files.
///
/// `app.css` is also served as `app.3f9a2bd0.css`, with a part of its SHA-256 hash and with
/// `Cache-Control: public, max-age=31536000, immutable`, as long as the file is unchanged since the start.
/// Under its plain name, and under a name with another hash, which old pages use, it is served with
/// `no-cache`.
///
/// References between files, as `url(logo.svg)` in a style sheet, use the plain names.
#[derive(Clone)]
pub struct Assets {
    shared: Arc<AssetsState>,
}

struct AssetsState {
    prefix: String,
    manifest: Manifest,
    /// Whether files can change while they are served: then URLs have no hash.
    reloads: bool,
    hashed: Files,
    plain: Files,
}

/// A builder of [`Assets`]; see [`Assets::folder`].
#[derive(Clone)]
#[must_use]
pub struct AssetsBuilder {
    files: Files,
    folder: PathBuf,
    prefix: String,
    reloads: bool,
}

impl Assets {
    /// The files below a folder, without hidden files.
    pub fn folder(folder: impl Into<PathBuf>) -> AssetsBuilder {
        let folder = folder.into();
        AssetsBuilder {
            files: Files::new(folder.clone()),
            folder,
            prefix: "/assets".to_owned(),
            reloads: cfg!(debug_assertions),
        }
    }

    /// The URL path of a file, by its path in the folder: `css/app.css`. `None` if the file does not exist.
    pub fn url(&self, name: &str) -> Option<Cow<'_, str>> {
        let shared = &*self.shared;
        let name = name.trim_start_matches('/');
        if shared.reloads {
            let address = || Cow::Owned(manifest::address(&shared.prefix, name));
            return shared.manifest.is_there(name).then(address);
        }
        shared.manifest.address(name).map(Cow::Borrowed)
    }

    /// All files by name, and their URL paths.
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

    /// Whether files can change at any time (development): [`Assets::url`] then returns plain names.
    /// Default: in debug builds.
    pub fn reload(mut self, reloads: bool) -> Self {
        self.reloads = reloads;
        self
    }

    /// Changes the settings of the files: types, compression, header fields.
    pub fn files(mut self, change: impl FnOnce(Files) -> Files) -> Self {
        self.files = change(self.files);
        self
    }

    /// Reads all files once and computes their hashes.
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
