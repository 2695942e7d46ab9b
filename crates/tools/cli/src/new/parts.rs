//! The parts that a project can begin with, and the files of a project with them.

use std::fmt::Write as _;

use clap::ValueEnum;

use super::name::ProjectName;

/// What a project can begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProjectPart {
    /// Accounts: sign-up by mail, log-in, remembered log-ins, reset of passwords, roles; with a database
    Login,
    /// A JSON API with validation, pages and an OpenAPI description
    Api,
    /// A database with migrations: SQLite, or PostgreSQL or MariaDB by its address
    Db,
}

/// The parts of a project.
pub(super) struct ProjectParts {
    has_login: bool,
    has_api: bool,
    has_db: bool,
}

/// A file: its path in the project, and its template.
type TemplateFile = (&'static str, &'static str);

/// The files of every project.
const COMMON: [TemplateFile; 4] = [
    ("build.rs", include_str!("project/build.rs.in")),
    ("Dockerfile", include_str!("project/Dockerfile.in")),
    (".dockerignore", include_str!("project/dockerignore.in")),
    ("@name@.service", include_str!("project/service.in")),
];

/// The files of a project without parts.
const PLAIN: [TemplateFile; 9] = [
    ("Cargo.toml", include_str!("project/Cargo.toml.in")),
    ("src/main.rs", include_str!("project/src/main.rs.in")),
    ("src/lib.rs", include_str!("project/src/lib.rs.in")),
    (
        "templates/base.html",
        include_str!("project/templates/base.html.in"),
    ),
    (
        "templates/home.html",
        include_str!("project/templates/home.html.in"),
    ),
    (
        "templates/hello.html",
        include_str!("project/templates/hello.html.in"),
    ),
    ("tests/app.rs", include_str!("project/tests/app.rs.in")),
    (".gitignore", include_str!("project/gitignore.in")),
    ("README.md", include_str!("project/README.md.in")),
];

/// A list of files in the folder `with`, by their paths in a project.
macro_rules! with {
    ($($path:literal: $file:literal,)*) => {
        [$(($path, include_str!(concat!("with/", $file, ".in")))),*]
    };
}

/// The files of a project with any part.
const WITH: [TemplateFile; 9] = with! {
    "Cargo.toml": "Cargo.toml",
    "src/main.rs": "src/main.rs",
    "src/lib.rs": "src/lib.rs",
    "src/settings.rs": "src/settings.rs",
    "templates/base.html": "templates/base.html",
    "templates/home.html": "templates/home.html",
    "tests/app.rs": "tests/app.rs",
    ".env.example": "env.example",
    ".gitignore": "gitignore",
};

const README: [TemplateFile; 1] = with! { "README.md": "README.md", };

const API: [TemplateFile; 1] = with! { "src/api.rs": "src/api.rs", };

const WITHOUT_DB: [TemplateFile; 1] = with! { "src/notes.rs": "src/notes.memory.rs", };

const DB: [TemplateFile; 11] = with! {
    "src/notes.rs": "src/notes.db.rs",
    "src/pages.rs": "src/pages.rs",
    "src/services.rs": "src/services.rs",
    "templates/notes.html": "templates/notes.html",
    "tests/fixture/mod.rs": "tests/fixture.rs",
    "migrations/sqlite/0001_notes.sql": "migrations/sqlite/notes.sql",
    "migrations/postgres/0001_notes.sql": "migrations/postgres/notes.sql",
    "migrations/mysql/0001_notes.sql": "migrations/mysql/notes.sql",
    "migrations/sqlite/0001_notes.down.sql": "migrations/notes.down.sql",
    "migrations/postgres/0001_notes.down.sql": "migrations/notes.down.sql",
    "migrations/mysql/0001_notes.down.sql": "migrations/notes.down.sql",
};

const LOGIN: [TemplateFile; 28] = with! {
    "src/accounts/mod.rs": "src/accounts/mod.rs",
    "src/accounts/current_user.rs": "src/accounts/current_user.rs",
    "src/accounts/log_in.rs": "src/accounts/log_in.rs",
    "src/accounts/mails.rs": "src/accounts/mails.rs",
    "src/accounts/page.rs": "src/accounts/page.rs",
    "src/accounts/profile.rs": "src/accounts/profile.rs",
    "src/accounts/set_password.rs": "src/accounts/set_password.rs",
    "src/accounts/sign_up.rs": "src/accounts/sign_up.rs",
    "src/accounts/users.rs": "src/accounts/users.rs",
    "templates/accounts/admin.html": "templates/accounts/admin.html",
    "templates/accounts/forgot.html": "templates/accounts/forgot.html",
    "templates/accounts/log-in.html": "templates/accounts/log-in.html",
    "templates/accounts/profile.html": "templates/accounts/profile.html",
    "templates/accounts/set-password.html": "templates/accounts/set-password.html",
    "templates/accounts/sign-up.html": "templates/accounts/sign-up.html",
    "templates/mail/changed.txt": "templates/mail/changed.txt",
    "templates/mail/known.txt": "templates/mail/known.txt",
    "templates/mail/reset.html": "templates/mail/reset.html",
    "templates/mail/reset.txt": "templates/mail/reset.txt",
    "templates/mail/welcome.html": "templates/mail/welcome.html",
    "templates/mail/welcome.txt": "templates/mail/welcome.txt",
    "tests/accounts.rs": "tests/accounts.rs",
    "migrations/sqlite/0002_users.sql": "migrations/sqlite/users.sql",
    "migrations/postgres/0002_users.sql": "migrations/postgres/users.sql",
    "migrations/mysql/0002_users.sql": "migrations/mysql/users.sql",
    "migrations/sqlite/0002_users.down.sql": "migrations/users.down.sql",
    "migrations/postgres/0002_users.down.sql": "migrations/users.down.sql",
    "migrations/mysql/0002_users.down.sql": "migrations/users.down.sql",
};

impl ProjectParts {
    pub(super) fn of(parts: &[ProjectPart]) -> Self {
        let has_login = parts.contains(&ProjectPart::Login);
        Self {
            has_login,
            has_api: parts.contains(&ProjectPart::Api),
            // Accounts are in a database.
            has_db: has_login || parts.contains(&ProjectPart::Db),
        }
    }

    fn is_plain(&self) -> bool {
        !self.has_login && !self.has_api && !self.has_db
    }

    /// The files of the project.
    pub(super) fn files(&self) -> Vec<TemplateFile> {
        let mut files = COMMON.to_vec();
        if self.is_plain() {
            files.extend(PLAIN);
            return files;
        }
        files.extend(WITH);
        files.extend(README);
        if self.has_db {
            files.extend(DB)
        } else {
            files.extend(WITHOUT_DB)
        }
        if self.has_api {
            files.extend(API);
        }
        if self.has_login {
            files.extend(LOGIN);
        }
        files
    }

    /// A template with the lines of these parts: those between `@if PART`, or `@if !PART`, and `@end`.
    pub(super) fn select(&self, template: &str) -> String {
        let mut selected = String::with_capacity(template.len());
        let mut conditions = Vec::new();
        for line in template.split_inclusive('\n') {
            let trimmed = line.trim();
            if let Some(part) = trimmed.strip_prefix("@if ") {
                conditions.push(match part.strip_prefix('!') {
                    Some(part) => !self.has(part),
                    None => self.has(part),
                });
            } else if trimmed == "@end" {
                conditions.pop();
            } else if conditions.iter().all(|holds| *holds) {
                selected.push_str(line);
            }
        }
        selected
    }

    fn has(&self, part: &str) -> bool {
        match part {
            "login" => self.has_login,
            "api" => self.has_api,
            _ => self.has_db,
        }
    }

    /// The options of `docker run` that the image needs, with a space behind them: nothing but temporary files and the
    /// database is written, and settings without a default are in a file.
    pub(super) fn docker_options(&self, name: &ProjectName) -> String {
        let mut options = "--rm --read-only --tmpfs /tmp --cap-drop ALL ".to_owned();
        if self.has_login {
            let _ = write!(options, "--env-file {name}.env ");
        }
        if self.has_db {
            let _ = write!(options, "-v {name}:/var/lib/{name} ");
        }
        options
    }

    /// The features of the crate `apus` that the project uses.
    pub(super) fn features(&self) -> String {
        let mut features = vec!["macros", "settings", "templates", "validate"];
        if self.has_db {
            features.push("sql");
        }
        if self.has_login {
            features.extend(["account", "mail", "password", "rate-limit"]);
        }
        if self.has_api {
            features.push("openapi");
        }
        features.sort_unstable();
        let mut list = String::new();
        for feature in features {
            let separator = if list.is_empty() { "" } else { ", " };
            let _ = write!(list, "{separator}\"{feature}\"");
        }
        list
    }
}
