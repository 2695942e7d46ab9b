//! Texts in several languages, and the language of a request.
//!
//! ```
//! use apus_handler::{HandlerService, Layered};
//! use apus_i18n::{Language, Translations};
//!
//! let translations = Translations::new("en", "cart = { $count ->\n    [one] One bird\n   *[other] { $count } birds\n}")?
//!     .and("de", "cart = { $count ->\n    [one] Ein Vogel\n   *[other] { $count } Vögel\n}")?;
//! let birds = async |language: Language| language.text_with("cart", [("count", 2.into())]);
//! let service = Layered::new(HandlerService::new(birds)).layer(translations);
//!
//! # use apus_testkit::get;
//! // "2 birds", with `Content-Language: en`
//! # let reply = get("/").to(&service);
//! # assert_eq!((reply.text(), reply.field("content-language")), ("2 birds", Some("en")));
//! let anyone = get("/");
//! // "2 Vögel"
//! let german = get("/").with("accept-language", "fr, de-AT;q=0.5");
//! // "2 Vögel": the choice of the visitor
//! let visitor = get("/").with("accept-language", "en").with("cookie", "language=de");
//! # for (request, expected) in [(anyone, "2 birds"), (german, "2 Vögel"), (visitor, "2 Vögel")] {
//! #     assert_eq!(request.to(&service).text(), expected);
//! # }
//! # Ok::<(), apus_i18n::TranslationError>(())
//! ```
//!
//! The package `apus` exports this crate as `apus::i18n`.
//!
//! Texts are in the language [Fluent](https://projectfluent.org).
//!
//! # Modules
//!
//! `language_texts`, `bundles`, `translations`: the texts. `negotiation`, `language`, `layer`: the language of a
//! request, by a cookie, the browser or a session. `templates`, `validation`: the function `t` of templates, and
//! messages about fields.
//!
//! # Tests
//!
//! `tests/it`: languages of requests, and templates. Pages and sessions are in
//! `crates/framework/web/tests/it/pages/languages.rs`.

#![forbid(unsafe_code)]

mod bundles;
mod error;
mod language;
mod language_texts;
mod layer;
mod negotiation;
#[cfg(feature = "templates")]
mod templates;
mod translations;
#[cfg(feature = "validate")]
mod validation;

pub use error::TranslationError;
pub use fluent_bundle::FluentValue;
pub use language::Language;
pub use layer::ChosenLanguage;
pub use translations::Translations;
