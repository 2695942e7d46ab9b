//! Mails: [`Mailer`] sends a [`Mail`] by SMTP, or keeps it, in development and in tests.
//!
//! ```
//! use apus_mail::{Mail, Mailer};
//!
//! # async fn send() -> Result<(), apus_mail::MailError> {
//! // In production "smtps://user:password@mail.example.com", in development "memory:" or "folder:mails".
//! let mailer = Mailer::open("memory:", "Shop <shop@example.com>")?;
//! let mail = Mail::new("ada@example.com", "Your order")
//!     .text("It is on its way.")
//!     .attach("invoice.txt", "text/plain", "1 swift: 19.99");
//! mailer.send(mail).await?;
//! assert_eq!(mailer.mails()[0].subject, "Your order");
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! `mail` is a message, `mailer` sends it (`smtp`, by lettre, with TLS) or keeps it (`catcher`); `background` sends
//! beside a request, in `background_slots`; `page` shows caught mails in development.
//!
//! # Tests
//!
//! `tests/it`: `smtp` against a scripted server, and caught mails.

#![forbid(unsafe_code)]

mod background;
mod background_slots;
mod catcher;
mod error;
mod mail;
mod mailer;
mod page;
mod smtp;

pub use catcher::CaughtMail;
pub use error::MailError;
pub use mail::{Attachment, Mail};
pub use mailer::Mailer;
pub use page::MailPage;
