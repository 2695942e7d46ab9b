//! `PageParts`: what every page shows.

use apus::auth::CsrfToken;
use apus::extract::AsyncExtractor;
use apus::session::Flash;
use apus::{Error, Result};
use serde::Serialize;

use super::accounts::CurrentUser;

/// The user, the messages of the request before, and the token of forms.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PageParts {
    user: Option<CurrentUser>,
    messages: Flash,
    token: String,
}

impl AsyncExtractor for PageParts {
    type Arguments = (Option<CurrentUser>, Flash, CsrfToken);
    type Rejection = Error;

    async fn extract((user, messages, token): Self::Arguments) -> Result<Self> {
        // Visitors who see no form need no session.
        let token = match user {
            Some(_) => token.token().await?,
            None => String::new(),
        };
        Ok(Self {
            user,
            messages,
            token,
        })
    }
}

impl PageParts {
    /// The parts of a page with a form for visitors.
    pub(crate) async fn with_token(mut self, token: &CsrfToken) -> Result<Self> {
        self.token = token.token().await?;
        Ok(self)
    }
}
