//! Log-in and log-out.

use apus::account::{EmailAddress, LocalPath};
use apus::auth::{CsrfToken, password};
use apus::extract::Cookies;
use apus::layers::ClientInfo;
use apus::session::Session;
use apus::template::{Page, Renderer, context};
use apus::{Form, Headers, IntoResponse, Query, Redirect, Response, Result, State, StatusCode};
use serde::Deserialize;

use super::{Accounts, current_user};
use crate::site::PageParts;

#[derive(Deserialize)]
pub(super) struct LogInQuery {
    next: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct LogInForm {
    email: String,
    password: String,
    #[serde(default)]
    remember: bool,
    next: Option<String>,
}

pub(super) async fn form(
    renderer: Renderer,
    page: PageParts,
    token: CsrfToken,
    Query(query): Query<LogInQuery>,
) -> Result<Page> {
    let page = page.with_token(&token).await?;
    // A link of an attacker must not lead to another site after the log-in.
    let next = LocalPath::parse_or(query.next.as_deref(), "/").to_string();
    let (email, wrong) = ("", "");
    Ok(renderer.page("log-in.html", context! { page, next, email, wrong }))
}

/// What a log-in needs of the request.
type LogInRequest = (ClientInfo, Headers, Session, Cookies);

pub(super) async fn log_in(
    (client, headers, session, mut cookies): LogInRequest,
    renderer: Renderer,
    page: PageParts,
    token: CsrfToken,
    State(accounts): State<Accounts>,
    Form(form): Form<LogInForm>,
) -> Result<Response> {
    let next = LocalPath::parse_or(form.next.as_deref(), "/");
    let email = EmailAddress::parse(&form.email);
    let user = match &email {
        Some(email) => {
            accounts.guesses.attempt(email.as_str())?;
            accounts.users.by_email(email).await?
        }
        None => None,
    };
    // Takes as long where there is nobody of this address.
    let stored = user.as_ref().and_then(|user| user.password.clone());
    let is_right = password::verify(client.ip, form.password, stored).await?;
    if let (true, Some(user)) = (is_right, user) {
        current_user::start(&session, user.id, user.generation)?;
        if form.remember {
            let browser = headers.get_str("user-agent").unwrap_or("");
            let remember = &accounts.remember;
            remember
                .remember(&mut cookies, client, user.id, browser)
                .await?;
        }
        return Ok((cookies, next.redirect()).into_response());
    }
    let page = page.with_token(&token).await?;
    let next = next.to_string();
    let email = form.email;
    // The message does not reveal whether the address has an account.
    let wrong = "There is no account with this address and password.";
    let page = renderer.page("log-in.html", context! { page, next, email, wrong });
    let page = page.status(StatusCode::UNPROCESSABLE_ENTITY);
    Ok(page.into_response())
}

pub(super) async fn log_out(
    client: ClientInfo,
    session: Session,
    mut cookies: Cookies,
    State(accounts): State<Accounts>,
) -> Result<(Cookies, Redirect)> {
    accounts.remember.forget(&mut cookies, client).await?;
    session.destroy();
    session.message("success", "You have logged out.").await?;
    Ok((cookies, Redirect::to("/log-in")))
}
