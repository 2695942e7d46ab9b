//! Reset of a password by a mail, and what it shares with sign-up: a token of a mail, and a new password.

use apus::account::{EmailAddress, PasswordRules};
use apus::auth::{CsrfToken, password};
use apus::layers::ClientInfo;
use apus::session::Session;
use apus::template::{Page, Renderer, context};
use apus::validate::{FormState, InvalidFields};
use apus::{
    Error, Form, IntoResponse, Query, Redirect, Response, Result, State, StatusCode, Valid,
};
use serde::Deserialize;

use super::Accounts;
use super::mails::RESET;
use super::sign_up::AddressForm;
use super::users::Member;
use crate::site::PageParts;

/// The token of a link. Logs have paths without queries.
#[derive(Deserialize)]
pub(super) struct TokenQuery {
    #[serde(default)]
    pub(super) token: String,
}

/// A form with the token of a mail and a new password.
#[derive(Deserialize)]
pub(super) struct NewPassword {
    pub(super) token: String,
    password: String,
}

pub(super) async fn forgot(
    renderer: Renderer,
    page: PageParts,
    token: CsrfToken,
    form: FormState,
) -> Result<Page> {
    let page = page.with_token(&token).await?;
    Ok(renderer.page("forgot.html", context! { page, form }))
}

pub(super) async fn send(
    renderer: Renderer,
    session: Session,
    State(accounts): State<Accounts>,
    form: Result<Valid<Form<AddressForm>>, InvalidFields>,
) -> Result<Redirect> {
    let Valid(Form(form)) = match form {
        Ok(form) => form,
        Err(invalid) => return FormState::redirect(invalid, &session, "/forgot"),
    };
    if let Some(email) = EmailAddress::parse(&form.email) {
        accounts.send_link(renderer, email, RESET);
    }
    let text = "If this address has an account, we have sent a mail to it.";
    session.message("success", text).await?;
    Ok(Redirect::to("/log-in"))
}

pub(super) async fn form(
    renderer: Renderer,
    page: PageParts,
    csrf: CsrfToken,
    State(accounts): State<Accounts>,
    Query(query): Query<TokenQuery>,
) -> Result<Response> {
    let page = page.with_token(&csrf).await?;
    password_page(&renderer, page, &accounts, RESET, &query.token).await
}

/// The page of a link in a mail. The link is redeemed by its form: programs that look at mails open links.
pub(super) async fn password_page(
    renderer: &Renderer,
    page: PageParts,
    accounts: &Accounts,
    purpose: &str,
    token: &str,
) -> Result<Response> {
    if accounts.tokens.find(purpose, token).await?.is_none() {
        return Err(invalid_link());
    }
    let form = FormState::default();
    let page = renderer.page("set-password.html", context! { page, form, token, purpose });
    // Neither other sites nor caches get the link.
    let fields = [
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
    ];
    Ok((fields, page).into_response())
}

fn invalid_link() -> Error {
    Error::gone("This link is not valid any more. Ask for a new one.")
}

pub(super) async fn reset(
    client: ClientInfo,
    renderer: Renderer,
    session: Session,
    page: PageParts,
    csrf: CsrfToken,
    State(accounts): State<Accounts>,
    Form(new): Form<NewPassword>,
) -> Result<Response> {
    match accounts.set_password(client, RESET, &new).await? {
        Ok((user, _)) => {
            accounts.tell_of_new_password(&renderer, &user.email)?;
            session.destroy();
            let text = "Your password has changed. Log in with the new one.";
            session.message("success", text).await?;
            Ok(Redirect::to("/log-in").into_response())
        }
        Err(form) => {
            let page = page.with_token(&csrf).await?;
            let purpose = RESET;
            let token = new.token;
            let page = renderer.page("set-password.html", context! { page, form, token, purpose });
            let page = page.status(StatusCode::UNPROCESSABLE_ENTITY);
            Ok(page.into_response())
        }
    }
}

impl Accounts {
    /// Redeems a token and sets the password of its user, or returns the form with what is wrong with the
    /// password. All sessions and remembered log-ins of the user end.
    pub(super) async fn set_password(
        &self,
        client: ClientInfo,
        purpose: &str,
        new: &NewPassword,
    ) -> Result<Result<(Member, i64), FormState>> {
        // First the token: hashing a password is work that a visitor without one cannot cause.
        let found = self.tokens.find(purpose, &new.token).await?;
        let found = found.ok_or_else(invalid_link)?;
        let user = self.users.find(found.account).await?;
        let user = user.ok_or_else(invalid_link)?;
        if let Err(form) = check(&new.password, &user.email)? {
            return Ok(Err(form));
        }
        let hash = password::hash(client.ip, &*new.password).await?;
        // Of several requests with the same token, one gets here.
        let redeemed = self.tokens.redeem(purpose, &new.token).await?;
        redeemed.ok_or_else(invalid_link)?;
        let generation = self.users.set_password(&user, &hash).await?;
        self.remember.forget_all(user.id).await?;
        Ok(Ok((user, generation)))
    }
}

/// Checks a new password. What is wrong with it is for the form.
pub(super) fn check(password: &str, email: &str) -> Result<Result<(), FormState>> {
    let name = email.split('@').next().unwrap_or("");
    match PasswordRules::default().check(password, &[email, name]) {
        Ok(()) => Ok(Ok(())),
        Err(problem) => Ok(Err(InvalidFields::new("password", problem).into_form()?)),
    }
}
