//! `Flash`: messages for the next page that a visitor sees.

use serde::Serialize;

use super::{Session, SessionError};
use apus_handler::Error;
use apus_handler::extract::AsyncExtractor;

/// The name of the flash value.
const FLASH: &str = "messages";

/// The messages that requests before this one left for the next page, which are shown once. An extractor for the page that
/// shows them; handlers that leave messages call [`Session::message`]. In a template:
/// `{% for message in flash %}<p class="{{ message.level }}">{{ message.text }}</p>{% endfor %}`.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Flash {
    /// The messages, the oldest first.
    pub messages: Vec<FlashMessage>,
}

/// A message for the next page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct FlashMessage {
    /// Its kind, as `success` or `error`.
    pub level: String,
    /// Its text.
    pub text: String,
}

impl Session {
    /// Leaves a message for the next page that takes [`Flash`], after those that are there.
    ///
    /// # Errors
    /// As [`Session::get`].
    pub async fn message(&self, level: &str, text: impl Into<String>) -> Result<(), SessionError> {
        let [level, text] = [level.to_owned(), text.into()];
        let mut messages: Vec<FlashMessage> = self.take_flash(FLASH).await?.unwrap_or_default();
        messages.push(FlashMessage { level, text });
        self.flash(FLASH, messages)
    }
}

impl AsyncExtractor for Flash {
    type Arguments = Session;
    type Rejection = Error;

    async fn extract(session: Session) -> Result<Self, Error> {
        let messages = session.take_flash(FLASH).await?.unwrap_or_default();
        Ok(Self { messages })
    }
}
