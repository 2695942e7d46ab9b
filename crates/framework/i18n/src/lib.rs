//! Texts in several languages, and the language of a request.
//!
//! ```
//! use apus::i18n::{Language, Translations};
//! use apus::testing::TestClient;
//! use apus::App;
//!
//! let translations = Translations::new("en", "cart = { $count ->\n    [one] One bird\n   *[other] { $count } birds\n}")?
//!     .and("de", "cart = { $count ->\n    [one] Ein Vogel\n   *[other] { $count } Vögel\n}")?;
//! let app = App::new()
//!     .layer(translations)
//!     .get("/", async |language: Language| language.text_with("cart", [("count", 2.into())]));
//!
//! let client = TestClient::new(app);
//! client.get("/").send().assert_text("2 birds").assert_header("content-language", "en");
//! client.get("/").header("accept-language", "fr, de-AT;q=0.5").send().assert_text("2 Vögel");
//! client.set_cookie("language", "de"); // the choice of the visitor
//! client.get("/").header("accept-language", "en").send().assert_text("2 Vögel");
//! # Ok::<(), apus::i18n::TranslationError>(())
//! ```
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
//! Unit tests and the example above; pages in `crates/framework/web/tests/it/pages`.

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
