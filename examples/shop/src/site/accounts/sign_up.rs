//! Sign-up: an address, a mail to it, and the password on the page that the mail links to. So nobody can sign
//! up with the address of another, and choose the password.

use apus::account::EmailAddress;
use apus::auth::CsrfToken;
use apus::layers::ClientInfo;
use apus::session::Session;
use apus::template::{Page, Renderer, context};
use apus::validate::{FormState, InvalidFields};
use apus::{Form, IntoResponse, Query, Redirect, Response, Result, State, StatusCode, Valid};
use garde::Validate;
use serde::Deserialize;

use super::mails::SIGN_UP;
use super::set_password::{NewPassword, TokenQuery, password_page};
use super::{Accounts, current_user};
use crate::site::PageParts;

/// A form with an address.
#[derive(Deserialize, Validate)]
pub(super) struct AddressForm {
    #[garde(custom(is_address))]
    pub(super) email: String,
}

fn is_address(text: &str, _: &()) -> garde::Result {
    match EmailAddress::parse(text) {
        Some(_) => Ok(()),
        None => Err(garde::Error::new("This is not an e-mail address.")),
    }
}

pub(super) async fn form(
    renderer: Renderer,
    page: PageParts,
    token: CsrfToken,
    form: FormState,
) -> Result<Page> {
    let page = page.with_token(&token).await?;
    Ok(renderer.page("sign-up.html", context! { page, form }))
}

pub(super) async fn send(
    renderer: Renderer,
    session: Session,
    State(accounts): State<Accounts>,
    form: Result<Valid<Form<AddressForm>>, InvalidFields>,
) -> Result<Redirect> {
    let Valid(Form(form)) = match form {
        Ok(form) => form,
        Err(invalid) => return FormState::redirect(invalid, &session, "/sign-up"),
    };
    if let Some(email) = EmailAddress::parse(&form.email) {
        accounts.send_link(renderer, email, SIGN_UP);
    }
    let text = "We have sent you a mail. Follow its link to finish the sign-up.";
    session.message("success", text).await?;
    Ok(Redirect::to("/log-in"))
}

pub(super) async fn welcome(
    renderer: Renderer,
    page: PageParts,
    csrf: CsrfToken,
    State(accounts): State<Accounts>,
    Query(query): Query<TokenQuery>,
) -> Result<Response> {
    let page = page.with_token(&csrf).await?;
    password_page(&renderer, page, &accounts, SIGN_UP, &query.token).await
}

pub(super) async fn confirm(
    client: ClientInfo,
    renderer: Renderer,
    session: Session,
    page: PageParts,
    csrf: CsrfToken,
    State(accounts): State<Accounts>,
    Form(new): Form<NewPassword>,
) -> Result<Response> {
    match accounts.set_password(client, SIGN_UP, &new).await? {
        Ok((user, generation)) => {
            current_user::start(&session, user.id, generation)?;
            session.message("success", "Welcome!").await?;
            Ok(Redirect::to("/").into_response())
        }
        Err(form) => {
            let page = page.with_token(&csrf).await?;
            let purpose = SIGN_UP;
            let token = new.token;
            let page = renderer.page("set-password.html", context! { page, form, token, purpose });
            let page = page.status(StatusCode::UNPROCESSABLE_ENTITY);
            Ok(page.into_response())
        }
    }
}
