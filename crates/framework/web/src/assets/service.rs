//! The service that serves assets on one worker.

use std::rc::Rc;
use std::sync::Arc;

use apus_http::{HeaderValue, Request, Response, ResponseFuture, Service, header};

use super::manifest::AssetName;
use super::{Assets, AssetsState};
use crate::files::FilesService;
use apus_http::path;

/// Serves files under their plain and hashed names.
pub(super) struct AssetsService {
    shared: Arc<AssetsState>,
    hashed: FilesService,
    plain: FilesService,
}

impl AssetsService {
    pub(super) fn new(assets: &Assets) -> Self {
        Self {
            hashed: assets.shared.hashed.build(),
            plain: assets.shared.plain.build(),
            shared: assets.shared.clone(),
        }
    }
}

impl Service for AssetsService {
    fn call(&self, mut request: Request) -> ResponseFuture {
        let Some(path) = request
            .plain_path()
            .ok()
            .and_then(|path| String::from_utf8(path.to_vec()).ok())
        else {
            return self.plain.call(request);
        };
        let manifest = &self.shared.manifest;
        match manifest.find(path.trim_start_matches('/')) {
            AssetName::Plain => self.plain.call(request),
            AssetName::Other(name) => {
                set_file(&mut request, &name);
                self.plain.call(request)
            }
            AssetName::Current(name) => {
                set_file(&mut request, name);
                let shared = self.shared.clone();
                let name: Rc<str> = name.into();
                let future = self.hashed.call(request);
                future.map(move |response| forget_if_changed(&shared, &name, response))
            }
        }
    }
}

/// Changes the request to the file of this name.
fn set_file(request: &mut Request, name: &str) {
    let encoded = path::encode(name.as_bytes());
    // An encoded path is always valid.
    let _ = request.set_path_and_query(&format!("/{encoded}"));
}

/// Forbids caching of a changed file under the hashed name of its old version.
fn forget_if_changed(shared: &AssetsState, name: &str, mut response: Response) -> Response {
    let modified = response.headers().get_str("last-modified");
    let is_unchanged =
        modified.is_some_and(|modified| shared.manifest.is_unchanged(name, modified));
    if !is_unchanged {
        response.headers_mut().insert(
            &header::CACHE_CONTROL,
            &HeaderValue::from_static("no-cache"),
        );
    }
    response
}
