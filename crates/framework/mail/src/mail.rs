//! `Mail`: a message with text, HTML and attachments (RFC 5322, RFC 2046).

use lettre::Message;
use lettre::address::Address;
use lettre::message::header::ContentType;
use lettre::message::{Attachment as AttachmentPart, Mailbox, MultiPart, SinglePart};

use crate::MailError;

/// A mail to be sent. Addresses are checked when it is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Mail {
    pub(crate) to: Vec<String>,
    pub(crate) reply_to: Option<String>,
    pub(crate) subject: String,
    pub(crate) text: Option<String>,
    pub(crate) html: Option<String>,
    pub(crate) attachments: Vec<Attachment>,
}

/// A file of a mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its name for the reader.
    pub name: String,
    /// Its media type.
    pub content_type: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Mail {
    /// A mail to `ada@example.com` or `Ada <ada@example.com>`.
    pub fn new(to: impl Into<String>, subject: impl Into<String>) -> Self {
        Self {
            to: vec![to.into()],
            subject: subject.into(),
            ..Self::default()
        }
    }

    /// A mail of a text whose first line is `Subject: ...`, as a template renders it. Without this line the
    /// subject is empty.
    pub fn of_text(to: impl Into<String>, text: &str) -> Self {
        let (subject, rest) = match text.strip_prefix("Subject:") {
            Some(text) => text.split_once('\n').unwrap_or((text, "")),
            None => ("", text),
        };
        Self::new(to, subject.trim()).text(rest.trim_start())
    }

    /// One more reader, whom the others see.
    pub fn to(mut self, to: impl Into<String>) -> Self {
        self.to.push(to.into());
        self
    }

    /// The address that replies go to, in place of the sender's.
    pub fn reply_to(mut self, address: impl Into<String>) -> Self {
        self.reply_to = Some(address.into());
        self
    }

    /// The body as plain text.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// The body as HTML. With a text, readers choose between both.
    pub fn html(mut self, html: impl Into<String>) -> Self {
        self.html = Some(html.into());
        self
    }

    /// Adds a file.
    pub fn attach(
        mut self,
        name: impl Into<String>,
        content_type: impl Into<String>,
        bytes: impl Into<Vec<u8>>,
    ) -> Self {
        self.attachments.push(Attachment {
            name: name.into(),
            content_type: content_type.into(),
            bytes: bytes.into(),
        });
        self
    }

    /// The message from a sender.
    pub(crate) fn message(&self, from: &Mailbox) -> Result<Message, MailError> {
        let invalid = |problem: &dyn std::fmt::Display| MailError::Part {
            problem: problem.to_string(),
        };
        let mut builder = Message::builder()
            .from(from.clone())
            .message_id(None)
            .subject(self.subject.clone());
        for to in &self.to {
            builder = builder.to(mailbox(to)?);
        }
        if let Some(address) = &self.reply_to {
            builder = builder.reply_to(mailbox(address)?);
        }
        let body = match (self.text.clone(), self.html.clone()) {
            (Some(text), Some(html)) => {
                MessageBody::Alternatives(MultiPart::alternative_plain_html(text, html))
            }
            (Some(text), None) => MessageBody::Single(SinglePart::plain(text)),
            (None, Some(html)) => MessageBody::Single(SinglePart::html(html)),
            (None, None) => return Err(MailError::Empty),
        };
        if self.attachments.is_empty() {
            let made = match body {
                MessageBody::Single(part) => builder.singlepart(part),
                MessageBody::Alternatives(parts) => builder.multipart(parts),
            };
            return made.map_err(|error| invalid(&error));
        }
        let mixed = MultiPart::mixed();
        let mut mixed = match body {
            MessageBody::Single(part) => mixed.singlepart(part),
            MessageBody::Alternatives(parts) => mixed.multipart(parts),
        };
        for attachment in &self.attachments {
            let content_type = ContentType::parse(&attachment.content_type).map_err(|_| {
                let found = &attachment.content_type;
                invalid(&format_args!("{found:?} is not a media type"))
            })?;
            let part = AttachmentPart::new(attachment.name.clone());
            mixed = mixed.singlepart(part.body(attachment.bytes.clone(), content_type));
        }
        builder.multipart(mixed).map_err(|error| invalid(&error))
    }
}

enum MessageBody {
    Single(SinglePart),
    Alternatives(MultiPart),
}

/// The mailbox of `ada@example.com` or `Ada <ada@example.com>`.
pub(crate) fn mailbox(text: &str) -> Result<Mailbox, MailError> {
    if let Ok(address) = text.trim().parse::<Address>() {
        return Ok(Mailbox::new(None, address));
    }
    text.parse().map_err(|error| MailError::Mailbox {
        text: text.to_owned(),
        problem: format!("{error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(mail: &Mail) -> Result<String, MailError> {
        let from = mailbox("Shop <shop@example.com>").unwrap();
        let message = mail.message(&from)?;
        Ok(String::from_utf8(message.formatted()).unwrap())
    }

    #[test]
    fn a_mail_has_its_parts_and_attachments() {
        let mail = Mail::new("Ada <ada@example.com>", "Grüße")
            .text("plain")
            .html("<p>rich")
            .attach("a.bin", "application/octet-stream", [0, 255]);
        let source = source(&mail).unwrap();
        for expected in [
            "From: Shop <shop@example.com>",
            "To: Ada <ada@example.com>",
            "multipart/mixed",
            "multipart/alternative",
            "text/plain",
            "text/html",
            "filename=\"a.bin\"",
            "AP8=",
        ] {
            assert!(source.contains(expected), "{expected}\n{source}");
        }
        assert!(!source.contains("Grüße"), "RFC 2047 encodes it: {source}");
    }

    #[test]
    fn a_subject_or_a_name_cannot_add_a_header_field() {
        let mail = Mail::new("ada@example.com", "Hello\r\nBcc: eve@example.com").text("x");
        let source = source(&mail).unwrap();
        assert!(!source.contains("\nBcc:"), "{source}");
        for to in [
            "ada@example.com\r\nBcc: eve@example.com",
            "Ada\r\nBcc: eve@example.com <ada@example.com>",
            "ada@example.com, eve@example.com",
            "ada",
            "",
        ] {
            let made = self::source(&Mail::new(to, "x").text("x"));
            match made {
                Ok(source) => assert!(!source.contains("\nBcc:"), "{to:?}: {source}"),
                Err(error) => assert!(matches!(error, MailError::Mailbox { .. }), "{error}"),
            }
        }
    }

    #[test]
    fn a_template_begins_with_the_subject() {
        let mail = Mail::of_text("a@b.c", "Subject: Your order \n\nIt is\nthere.\n");
        assert_eq!(mail.subject, "Your order");
        assert_eq!(mail.text.as_deref(), Some("It is\nthere.\n"));
        assert_eq!(Mail::of_text("a@b.c", "no subject").subject, "");
    }

    #[test]
    fn a_mail_without_body_or_with_a_wrong_media_type_is_an_error() {
        assert!(matches!(
            source(&Mail::new("a@b.c", "x")),
            Err(MailError::Empty)
        ));
        let mail = Mail::new("a@b.c", "x").text("x").attach("a", "none", "");
        let error = source(&mail).unwrap_err().to_string();
        assert!(error.contains("\"none\" is not a media type"), "{error}");
    }
}
