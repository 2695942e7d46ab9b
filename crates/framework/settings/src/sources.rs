//! `Settings`: the sources of settings, in order.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::rc::Rc;

use apus_private_files::{PrivateFiles, register};
use serde::de::DeserializeOwned;

use crate::error::{SettingsError, SettingsMistake};
use crate::repair;
use crate::value::{SettingsValue, ValueKind};

/// The sources of the settings of an application; see [the crate](crate).
#[derive(Clone, Debug)]
#[must_use]
pub struct Settings {
    values: SettingsValue,
    /// Variables of `.env` files. Variables of the environment take precedence.
    variables: Vec<(String, String, String)>,
    mistakes: Vec<SettingsMistake>,
}

impl Settings {
    /// No source.
    #[expect(clippy::new_without_default, reason = "sources are not a default")]
    pub fn new() -> Self {
        Self {
            values: SettingsValue::table(),
            variables: Vec::new(),
            mistakes: Vec::new(),
        }
    }

    /// A document in TOML: the defaults in the program, for example.
    pub fn toml(self, text: &str) -> Self {
        self.document(text, "the defaults")
    }

    /// A file in TOML, which may be missing. No service of this process sends it.
    pub fn file(self, path: impl AsRef<Path>) -> Self {
        let origin = path.as_ref().display().to_string();
        register(PrivateFiles::default().file(path.as_ref()));
        match fs::read_to_string(path) {
            Ok(text) => self.document(&text, &origin),
            Err(error) if error.kind() == ErrorKind::NotFound => self,
            Err(error) => self.mistake(&origin, format!("cannot be read: {error}")),
        }
    }

    /// A file with variables, `NAME=value` on each line, which may be missing; no service of this process sends it. [`Settings::environment`] reads them as if
    /// they were in the environment, whose own variables win.
    pub fn env_file(mut self, path: impl AsRef<Path>) -> Self {
        let origin = path.as_ref().display().to_string();
        register(PrivateFiles::default().file(path.as_ref()));
        let found = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return self,
            Err(error) => return self.mistake(&origin, format!("cannot be read: {error}")),
        };
        for (index, line) in dotenvy::from_read_iter(&*found).enumerate() {
            match line {
                Ok((name, value)) => {
                    let from = format!("the variable {name} of {origin}");
                    self.variables.push((name, value, from));
                }
                // The message contains the line, and so a value.
                Err(_) => {
                    let number = index.saturating_add(1);
                    let problem =
                        format!("entry {number} is not NAME=value; quote a value with spaces");
                    return self.mistake(&origin, problem);
                }
            }
        }
        self
    }

    /// The variables of the environment, and of [`Settings::env_file`], whose names begin with `prefix` and `_`.
    pub fn environment(self, prefix: &str) -> Self {
        let mut found = Vec::new();
        let mut this = self;
        for (name, value) in env::vars_os() {
            let Ok(name) = name.into_string() else {
                continue;
            };
            match value.into_string() {
                Ok(value) => found.push((name, value)),
                Err(_) if key_of(&name, prefix).is_some() => {
                    this = this.mistake(&format!("the variable {name}"), "is not UTF-8".to_owned());
                }
                Err(_) => {}
            }
        }
        this.variables(prefix, found)
    }

    /// As [`Settings::environment`], with these variables in place of the environment: for tests.
    pub fn variables<N: Into<String>, V: Into<String>>(
        mut self,
        prefix: &str,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let of_files = std::mem::take(&mut self.variables).into_iter();
        let given = variables.into_iter().map(|(name, value)| {
            let name: String = name.into();
            let from = format!("the variable {name}");
            (name, value.into(), from)
        });
        for (name, value, from) in of_files.chain(given) {
            if let Some(path) = key_of(&name, prefix) {
                let value = SettingsValue::new(ValueKind::Variable(value), &Rc::from(from));
                self.values.set(&path, value);
            }
        }
        self
    }

    /// Reads the struct of the application.
    ///
    /// # Errors
    /// All mistakes: of files that cannot be read, and of values. If a value is of a type that rejects every usual value,
    /// those after it are checked once it is right.
    pub fn load<T: DeserializeOwned>(self) -> Result<T, SettingsError> {
        let Self {
            values,
            mut mistakes,
            ..
        } = self;
        // A file that cannot be read would be many missing values.
        if !mistakes.is_empty() {
            return Err(SettingsError(mistakes));
        }
        repair::read(values).map_err(|found| {
            mistakes.extend(found);
            SettingsError(mistakes)
        })
    }

    fn document(mut self, text: &str, origin: &str) -> Self {
        match text.parse::<toml::Table>() {
            Ok(table) => {
                let table = toml::Value::Table(table);
                self.values
                    .merge(SettingsValue::of_toml(table, &Rc::from(origin)));
                self
            }
            Err(error) => {
                // The whole message has the line, and so a value.
                let at = error.span().map_or(0, |span| span.start);
                let before = text.get(..at).unwrap_or(text);
                let line = before.matches('\n').count().saturating_add(1);
                self.mistake(&format!("{origin}:{line}"), error.message().to_owned())
            }
        }
    }

    fn mistake(mut self, origin: &str, problem: String) -> Self {
        self.mistakes.push(SettingsMistake {
            key: String::new(),
            origin: origin.to_owned(),
            problem,
        });
        self
    }
}

/// The key of a variable: `["mail", "server"]` for `SHOP_MAIL__SERVER` with the prefix `SHOP`.
fn key_of(name: &str, prefix: &str) -> Option<Vec<String>> {
    let rest = name.strip_prefix(prefix)?.strip_prefix('_')?;
    let parts: Vec<String> = rest.split("__").map(str::to_lowercase).collect();
    parts.iter().all(|part| !part.is_empty()).then_some(parts)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use serde::Deserialize;

    use super::*;
    use crate::Secret;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Shop {
        listen: SocketAddr,
        #[serde(default)]
        workers: u16,
        mode: ShopMode,
        secret: Secret,
        mail: MailPart,
        comment: Option<String>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct MailPart {
        server: String,
        ports: Vec<u16>,
        is_quiet: bool,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum ShopMode {
        Development,
        Production,
    }

    const WHOLE: &str = "
        listen = '127.0.0.1:80'
        mode = 'production'
        secret = 'hunter2'
        [mail]
        server = 'memory:'
        ports = [25]
        is_quiet = true
    ";

    #[test]
    fn later_sources_replace_single_values() {
        let folder = tempfile::tempdir().unwrap();
        let [file, env] = ["shop.toml", ".env"].map(|name| folder.path().join(name));
        fs::write(&file, "workers = 2\n[mail]\nserver = 'smtp://file'\n").unwrap();
        fs::write(
            &env,
            "# a comment\nSHOP_WORKERS=3\nSHOP_MAIL__PORTS=\"25, 587\"\nOTHER=1\n",
        )
        .unwrap();
        let shop: Shop = Settings::new()
            .toml(WHOLE)
            .file(&file)
            .env_file(&env)
            .file(folder.path().join("none.toml"))
            .variables(
                "SHOP",
                [
                    ("SHOP_WORKERS", "4"),
                    ("SHOP_MAIL__IS_QUIET", "false"),
                    ("SHOP_SECRET", "123"),
                    ("SHOP_COMMENT", ""),
                    ("SHOPPING", "x"),
                ],
            )
            .load()
            .unwrap();
        assert_eq!(
            shop,
            Shop {
                listen: "127.0.0.1:80".parse().unwrap(),
                workers: 4,
                mode: ShopMode::Production,
                secret: Secret::new("123"),
                mail: MailPart {
                    server: "smtp://file".to_owned(),
                    ports: vec![25, 587],
                    is_quiet: false,
                },
                comment: None,
            }
        );
        assert!(!format!("{shop:?}").contains("123"));
    }

    #[test]
    fn all_mistakes_are_told_at_once_without_a_value() {
        let error = Settings::new()
            .toml(
                "listen = 'hunter2'\nworkers = 'hunter2'\nmode = 'hunter2'\nsecret = ['hunter2']\nnone = 'hunter2'\n\
                 [mail]\nports = ['hunter2']\nis_quiet = 1",
            )
            .variables("SHOP", [("SHOP_MAIL__PORT", "hunter2"), ("SHOP_WORKERS", "70000")])
            .load::<Shop>()
            .unwrap_err();
        let told = error.to_string();
        for mistake in [
            "listen: invalid socket address syntax (in the defaults)",
            "workers: expected an integer from 0 to 65535 (in the variable SHOP_WORKERS)",
            "mode: expected one of development, production (in the defaults)",
            "secret: expected a string, found a list (in the defaults)",
            "none: there is no such key; expected one of listen, workers, mode, secret, mail, comment",
            "mail.port: there is no such key; expected one of server, ports, is_quiet (in the variable SHOP_MAIL__PORT)",
            "mail.ports.0: expected u16, found a text (in the defaults)",
            "mail.is_quiet: expected a boolean, found an integer (in the defaults)",
            "mail.server: a value is missing",
        ] {
            assert!(told.contains(mistake), "{mistake}\n{told}");
        }
        assert_eq!(error.mistakes().len(), 9, "{told}");
        assert!(told.starts_with("9 mistakes in the settings:\n"), "{told}");
        assert!(!format!("{told} {error:?}").contains("hunter2"), "{told}");
    }

    #[test]
    fn missing_values_of_missing_tables_are_told() {
        let error = Settings::new().load::<Shop>().unwrap_err();
        let keys: Vec<_> = error
            .mistakes()
            .iter()
            .map(|mistake| &*mistake.key)
            .collect();
        let expected = [
            "listen",
            "mode",
            "secret",
            "mail",
            "mail.server",
            "mail.ports",
            "mail.is_quiet",
        ];
        assert_eq!(keys, expected, "{error}");
    }

    #[test]
    fn files_that_cannot_be_read_are_told_with_their_line() {
        let folder = tempfile::tempdir().unwrap();
        let [file, env] = ["shop.toml", ".env"].map(|name| folder.path().join(name));
        fs::write(&file, "workers = 2\nlisten = hunter2\n").unwrap();
        fs::write(&env, "SHOP_A=1\nSHOP_SECRET=two hunter2 words\n").unwrap();
        let settings = Settings::new()
            .file(&file)
            .env_file(&env)
            .file(folder.path());
        let error = settings.load::<Shop>().unwrap_err();
        let told = error.to_string();
        assert!(told.contains("shop.toml:2: "), "{told}");
        assert!(told.contains(".env: entry 2 is not NAME=value"), "{told}");
        assert!(told.contains("cannot be read: "), "{told}");
        assert_eq!(error.mistakes().len(), 3, "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}
