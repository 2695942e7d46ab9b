//! Pictures that members upload.

use std::path::PathBuf;

use apus::auth::CsrfToken;
use apus::extract::{MultipartForm, Require, Upload, UploadLimits};
use apus::session::Session;
use apus::sql::{Db, sqlx};
use apus::template::{Page, Renderer, context};
use apus::validate::{FormState, InvalidFields};
use apus::{
    App, HandlerExt, IntoResponse, OrNotFound, Path, Redirect, Response, Result, State, blocking,
};
use serde::{Deserialize, Serialize};

use super::PageParts;
use super::accounts::CurrentUser;
use crate::Services;

/// The most bytes of a picture.
const LARGEST: u64 = 4 << 20;

/// The folder of the pictures, whose files are named by their ids.
#[derive(Clone)]
struct Pictures(PathBuf);

#[derive(Deserialize)]
struct NewPicture {
    title: String,
}

#[derive(Serialize)]
struct Picture {
    id: i64,
    title: String,
}

/// Adds the routes.
pub(super) fn routes(app: App, services: &Services) -> App {
    app.group("/pictures", |pictures| {
        pictures
            .layer(Require::<CurrentUser>::new())
            .state(Pictures(services.pictures.clone()))
            .get("/", list)
            .post("/", add.with(UploadLimits::new().total(LARGEST + 4096)))
            .get("/{id}", show)
    })
}

async fn list(
    renderer: Renderer,
    page: PageParts,
    token: CsrfToken,
    State(db): State<Db>,
    form: FormState,
) -> Result<Page> {
    let page = page.with_token(&token).await?;
    let rows: Vec<(i64, String)> =
        sqlx::query_as("SELECT id, title FROM pictures ORDER BY id DESC LIMIT 100")
            .fetch_all(&db)
            .await?;
    let rows = rows.into_iter();
    let pictures: Vec<_> = rows.map(|(id, title)| Picture { id, title }).collect();
    Ok(renderer.page("pictures.html", context! { page, pictures, form }))
}

async fn add(
    session: Session,
    CurrentUser(user): CurrentUser,
    State(db): State<Db>,
    State(Pictures(folder)): State<Pictures>,
    form: MultipartForm<NewPicture>,
) -> Result<Redirect> {
    let title = form.fields.title.trim();
    let mut invalid = None;
    if title.is_empty() || title.chars().count() > 100 {
        let message = "A title has 1 to 100 characters.";
        invalid = Some(InvalidFields::new("title", message));
    }
    let file = form.files.get("picture").filter(|file| !file.is_empty());
    let media_type = match file {
        Some(file) => media_type(&start(file).await?),
        None => None,
    };
    let (Some(file), Some(media_type), None) = (file, media_type, &invalid) else {
        if media_type.is_none() {
            let message = "Choose a picture: PNG, JPEG, GIF or WebP.";
            invalid = Some(match invalid {
                Some(invalid) => invalid.and("picture", message),
                None => InvalidFields::new("picture", message),
            });
        }
        let invalid = invalid.unwrap_or_else(|| InvalidFields::new("picture", ""));
        return FormState::redirect(invalid, &session, "/pictures");
    };
    let insert =
        "INSERT INTO pictures (user_id, title, content_type) VALUES (?, ?, ?) RETURNING id";
    let transaction = db.begin();
    let id: i64 = sqlx::query_scalar(db.sql(insert))
        .bind(user.id)
        .bind(title)
        .bind(media_type)
        .fetch_one(&transaction)
        .await?;
    // The file does not get the name that the client sent.
    file.save(folder.join(id.to_string())).await?;
    transaction.commit().await?;
    session.message("success", "The picture is stored.").await?;
    Ok(Redirect::to("/pictures"))
}

/// The first bytes of a file.
async fn start(file: &Upload) -> Result<Vec<u8>> {
    let mut bytes = file.bytes().await?.to_vec();
    bytes.truncate(16);
    Ok(bytes)
}

/// The media type of a picture by its first bytes. What the client says of it does not count: a page with scripts could
/// be called a picture.
fn media_type(start: &[u8]) -> Option<&'static str> {
    match start {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

async fn show(
    State(db): State<Db>,
    State(Pictures(folder)): State<Pictures>,
    Path(id): Path<i64>,
) -> Result<Response> {
    let select = "SELECT content_type FROM pictures WHERE id = ?";
    let content_type: Option<String> = sqlx::query_scalar(db.sql(select))
        .bind(id)
        .fetch_optional(&db)
        .await?;
    let content_type = content_type.or_not_found("there is no such picture")?;
    let bytes = blocking(move || std::fs::read(folder.join(id.to_string()))).await?;
    let fields = [
        ("content-type", content_type.as_str()),
        ("cache-control", "private, max-age=86400"),
    ];
    Ok((fields, bytes).into_response())
}
