//! An example that receives files from a form, stores them in a folder, and serves them.

#![forbid(unsafe_code)]

mod page;
mod store;

use apus::extract::{Multipart, UploadLimits};
use apus::layers::{Logged, SecurityHeaders};
use apus::{
    App, Error, Files, HandlerExt, HeaderMap, HeaderValue, Html, IntoResponse, Json, Next,
    Redirect, Request, Response, Result, State, StatusCode, header,
};

pub use store::{Store, Stored};

/// The application, with `limits` for each form.
pub fn app(store: Store, limits: UploadLimits) -> App {
    // Uploaded files are downloads of any type, never pages of this site.
    let downloads = App::new().after(as_download).mount(
        "/",
        Files::new(store.folder())
            .index(Vec::<String>::new())
            .source_extensions(Vec::<String>::new()),
    );
    App::new()
        .layer(Logged::new())
        .layer(SecurityHeaders::new())
        .state(store)
        .get("/", page)
        .get("/files", list)
        .post("/files", upload.with(from_this_site).with(limits))
        .mount("/files", downloads)
}

/// The HTML page.
async fn page(State(store): State<Store>) -> Result<Html<String>> {
    Ok(Html(page::of(&store.list().await?)))
}

/// The list as JSON.
async fn list(State(store): State<Store>) -> Result<Json<Vec<Stored>>> {
    Ok(Json(store.list().await?))
}

/// Stores all files of a form, or none.
async fn upload(
    State(store): State<Store>,
    headers: HeaderMap,
    mut form: Multipart,
) -> Result<Response> {
    let mut new = Vec::new();
    while let Some(part) = form.next().await? {
        let Some(name) = part.file_name() else {
            continue;
        };
        let name = store::clean(name).map(str::to_owned);
        // Written to disk without a name while it is received: an incomplete file disappears.
        let file = part.store().await?;
        match name {
            Some(name) => new.push((name, file)),
            // Browsers send an empty file without a name if none was chosen.
            None if file.is_empty() && file.file_name().is_empty() => {}
            None => {
                return Err(Error::unprocessable(format_args!(
                    "{:?} cannot be the name of a file here",
                    file.file_name()
                )));
            }
        }
    }
    if new.is_empty() {
        return Err(Error::unprocessable("there is no file in the form"));
    }
    let stored = store.keep(new).await?;
    let accept = headers
        .get("accept")
        .and_then(|accept| accept.to_str().ok());
    Ok(match accept {
        Some(accept) if accept.contains("text/html") => Redirect::to("/").into_response(),
        _ => (StatusCode::CREATED, Json(stored)).into_response(),
    })
}

/// Rejects forms that pages of other sites send.
async fn from_this_site(request: Request, next: Next) -> Result<Response> {
    match request.headers().get_str("sec-fetch-site") {
        None | Some("same-origin" | "none") => Ok(next.run(request).await),
        Some(_) => Err(Error::forbidden(
            "files are taken from the page of this site only",
        )),
    }
}

fn as_download(response: &mut Response) {
    if response.status().is_success() {
        let headers = response.headers_mut();
        headers.insert(
            &header::CONTENT_DISPOSITION,
            &HeaderValue::from_static("attachment"),
        );
        headers.insert(
            &header::CONTENT_SECURITY_POLICY,
            &HeaderValue::from_static("sandbox; default-src 'none'"),
        );
    }
}
