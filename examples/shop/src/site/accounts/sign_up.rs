//! Sign-up: an address, a mail to it, and the password on the page that the mail links to. So nobody can sign
//! up with the address of another, and choose the password.

use apus::auth::CsrfToken;
use apus::layers::ClientInfo;
use apus::session::Session;
use apus::template::{Page, Renderer, context};
use apus::validate::{FormState, InvalidFields};
use apus::{Form, IntoResponse, Query, Redirect, Response, Result, State, Valid};

use super::mails::{AddressForm, SIGN_UP};
use super::set_password::{MailLink, NewPassword, TokenQuery};
use super::{Accounts, current_user};
use crate::site::PageParts;

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
    match form {
        Ok(Valid(Form(form))) => {
            accounts.send_link(renderer, &form, SIGN_UP);
            let text = "We have sent you a mail. Follow its link to finish the sign-up.";
            session.message("success", text).await?;
            Ok(Redirect::to("/log-in"))
        }
        Err(invalid) => FormState::redirect(invalid, &session, "/sign-up"),
    }
}

pub(super) async fn welcome(
    renderer: Renderer,
    page: PageParts,
    csrf: CsrfToken,
    State(accounts): State<Accounts>,
    Query(query): Query<TokenQuery>,
) -> Result<Response> {
    let page = page.with_token(&csrf).await?;
    let link = MailLink::new(SIGN_UP, &query.token);
    link.open(&renderer, page, &accounts).await
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
            Ok(MailLink::new(SIGN_UP, &new.token).again(&renderer, page, form))
        }
    }
}
