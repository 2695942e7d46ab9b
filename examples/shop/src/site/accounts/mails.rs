//! The mails about accounts, which are sent after the response: the time of a response does not reveal
//! whether an address has an account.

use std::time::Duration;

use apus::account::EmailAddress;
use apus::template::{Renderer, context};
use apus::{Result, tokio};
use garde::Validate;
use serde::Deserialize;

use super::Accounts;

/// The purpose of the tokens in mails that confirm an address.
pub(super) const SIGN_UP: &str = "sign-up";

/// The purpose of the tokens in mails that reset a password.
pub(super) const RESET: &str = "reset";

/// How long a link in a mail is valid.
const LIFETIME: Duration = Duration::from_secs(3600);

/// A form with an address.
#[derive(Deserialize, Validate)]
pub(super) struct AddressForm {
    #[garde(custom(is_address))]
    email: String,
}

fn is_address(text: &str, _: &()) -> garde::Result {
    match EmailAddress::parse(text) {
        Some(_) => Ok(()),
        None => Err(garde::Error::new("This is not an e-mail address.")),
    }
}

impl Accounts {
    /// Sends the link to an address after the response.
    pub(super) fn send_link(&self, renderer: Renderer, to: &AddressForm, purpose: &'static str) {
        let Some(email) = EmailAddress::parse(&to.email) else {
            return;
        };
        // All addresses count, also those without an account.
        if self.mails.attempt(email.as_str()).is_err() {
            tracing::warn!("too many mails to one address were asked for");
            return;
        }
        let accounts = self.clone();
        tokio::task::spawn_local(async move {
            if let Err(error) = accounts.send(&renderer, &email, purpose).await {
                tracing::error!(?error, "a mail could not be made");
            }
        });
    }

    async fn send(&self, renderer: &Renderer, email: &EmailAddress, purpose: &str) -> Result<()> {
        let user = match purpose {
            SIGN_UP => self.users.sign_up(email).await?,
            _ => self.users.by_email(email).await?,
        };
        let Some(user) = user else {
            return Ok(());
        };
        let url = &self.public_url;
        let (template, link) = match (purpose, &user.password) {
            (SIGN_UP, Some(_)) => ("mail/known", format!("{url}/forgot")),
            // Who signed up and forgot it gets the same link again.
            (_, None) => {
                let token = self.tokens.issue(SIGN_UP, user.id, "", LIFETIME).await?;
                ("mail/welcome", format!("{url}/welcome?token={token}"))
            }
            (_, Some(_)) => {
                let token = self.tokens.issue(RESET, user.id, "", LIFETIME).await?;
                ("mail/reset", format!("{url}/reset?token={token}"))
            }
        };
        let mail = renderer.mail(user.email, template, context! { link })?;
        self.mailer.send_later(mail);
        Ok(())
    }

    /// Tells a user that the password has changed.
    pub(super) fn tell_of_new_password(&self, renderer: &Renderer, email: &str) -> Result<()> {
        let link = format!("{}/forgot", self.public_url);
        let mail = renderer.mail(email, "mail/changed", context! { link })?;
        self.mailer.send_later(mail);
        Ok(())
    }
}
