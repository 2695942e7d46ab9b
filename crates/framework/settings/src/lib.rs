//! The settings of an application: a TOML file, a `.env` file and the environment, in a struct of the application.
//!
//! ```
//! use apus_settings::{Secret, Settings};
//! use serde::Deserialize;
//!
//! #[derive(Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct ShopSettings {
//!     listen: String,
//!     secret: Secret,
//!     mail: MailSettings,
//! }
//!
//! #[derive(Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct MailSettings {
//!     server: Secret,
//!     #[serde(default)]
//!     copies: Vec<String>,
//! }
//!
//! let settings: ShopSettings = Settings::new()
//!     .toml("listen = '127.0.0.1:8080'\n[mail]\nserver = 'memory:'")
//!     // As `SHOP_MAIL__COPIES=...` in the environment.
//!     .variables("SHOP", [("SHOP_SECRET", "hunter2"), ("SHOP_MAIL__COPIES", "a@b.c, d@e.f")])
//!     .load()?;
//! assert_eq!(settings.mail.copies, ["a@b.c", "d@e.f"]);
//! assert_eq!(settings.secret.expose(), "hunter2");
//! assert_eq!(format!("{:?}", settings.secret), "Secret(..)");
//! # Ok::<(), apus_settings::SettingsError>(())
//! ```
//!
//! What comes later replaces what came before, value by value: `Settings::new().file("shop.toml").env_file(".env").environment("SHOP")`.
//! The variable `SHOP_MAIL__SERVER` is the key `mail.server`: names have no case, two underscores separate tables. A value
//! of a variable is read as the type of the field: a number, `true` or `false`, or a list that is separated by commas.
//!
//! All mistakes are reported at once, each with its key and where it comes from. No message contains a value.
//!
//! # Tests
//!
//! Unit tests stand at the end of each module.

#![forbid(unsafe_code)]

mod error;
mod read;
mod repair;
mod secret;
mod sources;
mod value;

pub use error::{SettingsError, SettingsMistake};
pub use secret::Secret;
pub use sources::Settings;
