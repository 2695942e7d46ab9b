//! Log-in with sessions: register, log in, log out, and a form that only members can send.

#![forbid(unsafe_code)]

mod users;

use apus::auth::{Csrf, CsrfToken, password};
use apus::layers::{ClientInfo, RateLimit};
use apus::session::{Session, Sessions, SqlStore};
use apus::sql::{Db, Migrations, migrations};
use apus::template::{Page, Renderer, Templates, context};
use apus::{
    App, Extension, Form, HandlerExt, IntoResponse, Next, Redirect, Request, Response, State,
};
use apus::{Result, StartError, StatusCode};
use serde::Deserialize;

use users::{User, Users};

/// The name of the session value with the logged-in user.
const USER: &str = "user";

/// The migrations of the database.
pub const MIGRATIONS: Migrations = migrations!();

/// The application with a database, whose migrations it runs.
///
/// # Errors
/// The database cannot be reached or migrated, or a template is not valid.
pub fn app(db: Db) -> std::result::Result<App, StartError> {
    db.migrate(MIGRATIONS)?;
    let templates = Templates::embedded([
        ("base.html", include_str!("../templates/base.html")),
        ("home.html", include_str!("../templates/home.html")),
        ("enter.html", include_str!("../templates/enter.html")),
        ("note.html", include_str!("../templates/note.html")),
    ]);
    // Limits the guesses of one address.
    let guesses = RateLimit::per_minute(20);
    Ok(App::new()
        .layer(Sessions::new(SqlStore::new(db.clone())).persistent())
        .layer(Csrf::new())
        .state(Users::new(db))
        .state(templates.load()?)
        .get("/", home)
        .get("/register", register_form)
        .post("/register", register.with(guesses.clone()))
        .get("/login", log_in_form)
        .post("/login", log_in.with(guesses))
        .post("/logout", log_out)
        .group("/note", |members| {
            members.layer(members_only).get("/", note).post("/", write)
        }))
}

/// Redirects visitors who are not logged in to the log-in page.
async fn members_only(mut request: Request, next: Next) -> Result<Response> {
    let user: Option<User> = match Session::of(&request) {
        Some(session) => session.get(USER).await?,
        None => None,
    };
    let Some(user) = user else {
        return Ok(Redirect::to("/login").into_response());
    };
    request.extensions_mut().insert(user);
    Ok(next.run(request).await)
}

async fn home(renderer: Renderer, session: Session, token: CsrfToken) -> Result<Page> {
    let user: Option<User> = session.get(USER).await?;
    let notice: Option<String> = session.take_flash("notice").await?;
    // Visitors without log-in see no form and need no session.
    let token = match &user {
        Some(_) => token.token().await?,
        None => String::new(),
    };
    Ok(renderer.page("home.html", context! { user, notice, token }))
}

/// The fields of the forms for log-in and registration.
#[derive(Deserialize)]
struct Entry {
    name: String,
    password: String,
}

async fn register_form(renderer: Renderer, token: CsrfToken) -> Result<Page> {
    enter(&renderer, &token, "Register", "").await
}

async fn log_in_form(renderer: Renderer, token: CsrfToken) -> Result<Page> {
    enter(&renderer, &token, "Log in", "").await
}

async fn enter(renderer: &Renderer, token: &CsrfToken, title: &str, wrong: &str) -> Result<Page> {
    let token = token.token().await?;
    Ok(renderer.page("enter.html", context! { title, wrong, token }))
}

async fn register(
    client: ClientInfo,
    renderer: Renderer,
    session: Session,
    token: CsrfToken,
    State(users): State<Users>,
    Form(entry): Form<Entry>,
) -> Result<Response> {
    let name = entry.name.trim();
    let wrong = if name.is_empty() || name.chars().count() > 40 {
        "A name has 1 to 40 characters."
    } else if entry.password.chars().count() < 8 {
        "A password has at least 8 characters."
    } else {
        let stored = password::hash(client.ip, entry.password).await?;
        match users.add(name, &stored).await? {
            Some(user) => return welcome(&session, &user),
            None => "Somebody has this name already.",
        }
    };
    let page = enter(&renderer, &token, "Register", wrong).await?;
    Ok(page
        .status(StatusCode::UNPROCESSABLE_ENTITY)
        .into_response())
}

async fn log_in(
    client: ClientInfo,
    renderer: Renderer,
    session: Session,
    token: CsrfToken,
    State(users): State<Users>,
    Form(entry): Form<Entry>,
) -> Result<Response> {
    let found = users.by_name(entry.name.trim()).await?;
    let (user, stored) = found.unzip();
    let is_right = password::verify(client.ip, entry.password, stored).await?;
    if let (true, Some(user)) = (is_right, user) {
        return welcome(&session, &user);
    }
    // The message does not reveal whether the name exists.
    let wrong = "There is nobody of this name and password.";
    let page = enter(&renderer, &token, "Log in", wrong).await?;
    Ok(page
        .status(StatusCode::UNPROCESSABLE_ENTITY)
        .into_response())
}

/// Logs a user in.
fn welcome(session: &Session, user: &User) -> Result<Response> {
    session.renew();
    session.insert(USER, user)?;
    session.flash("notice", format!("Welcome, {}!", user.name))?;
    Ok(Redirect::to("/").into_response())
}

async fn log_out(session: Session) -> Result<Redirect> {
    session.destroy();
    session.flash("notice", "Good-bye!")?;
    Ok(Redirect::to("/"))
}

async fn note(
    renderer: Renderer,
    token: CsrfToken,
    State(users): State<Users>,
    Extension(user): Extension<User>,
) -> Result<Page> {
    let text = users.note(user.id).await?;
    let token = token.token().await?;
    Ok(renderer.page("note.html", context! { user, text, token }))
}

#[derive(Deserialize)]
struct Note {
    text: String,
}

async fn write(
    State(users): State<Users>,
    Extension(user): Extension<User>,
    Form(note): Form<Note>,
) -> Result<Redirect> {
    users.write(user.id, &note.text).await?;
    Ok(Redirect::to("/note"))
}
