//! Reset of a password by a mail, and what it shares with sign-up: a token of a mail, and a new password.

use apus::account::PasswordRules;
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
use super::mails::{AddressForm, RESET};
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
    match form {
        Ok(Valid(Form(form))) => {
            accounts.send_link(renderer, &form, RESET);
            let text = "If this address has an account, we have sent a mail to it.";
            session.message("success", text).await?;
            Ok(Redirect::to("/log-in"))
        }
        Err(invalid) => FormState::redirect(invalid, &session, "/forgot"),
    }
}

pub(super) async fn form(
    renderer: Renderer,
    page: PageParts,
    csrf: CsrfToken,
    State(accounts): State<Accounts>,
    Query(query): Query<TokenQuery>,
) -> Result<Response> {
    let page = page.with_token(&csrf).await?;
    let link = MailLink::new(RESET, &query.token);
    link.open(&renderer, page, &accounts).await
}

/// A link in a mail, whose page has the form for a new password.
pub(super) struct MailLink<'a> {
    purpose: &'static str,
    token: &'a str,
}

impl<'a> MailLink<'a> {
    pub(super) fn new(purpose: &'static str, token: &'a str) -> Self {
        Self { purpose, token }
    }

    /// Its page. The link is redeemed by the form: programs that look at mails open links.
    pub(super) async fn open(
        &self,
        renderer: &Renderer,
        page: PageParts,
        accounts: &Accounts,
    ) -> Result<Response> {
        let found = accounts.tokens.find(self.purpose, self.token).await?;
        found.ok_or_else(invalid_link)?;
        let page = self.page(renderer, page, FormState::default());
        // Neither other sites nor caches get the link.
        let fields = [
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
        ];
        Ok((fields, page).into_response())
    }

    /// Its page again, with what is wrong with the password.
    pub(super) fn again(&self, renderer: &Renderer, page: PageParts, form: FormState) -> Response {
        let page = self.page(renderer, page, form);
        page.status(StatusCode::UNPROCESSABLE_ENTITY)
            .into_response()
    }

    fn page(&self, renderer: &Renderer, page: PageParts, form: FormState) -> Page {
        let Self { purpose, token } = self;
        renderer.page("set-password.html", context! { page, form, token, purpose })
    }
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
            Ok(MailLink::new(RESET, &new.token).again(&renderer, page, form))
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
