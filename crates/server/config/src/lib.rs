//! The configuration file `apus.toml`: its keys, diagnostics, and the plan that it resolves to.
//!
//! `raw` defines every key once; the parser, the reference and the JSON schema are generated from it.
//! `resolve` turns the keys into a [`ServerPlan`], and reports all errors of the files in one run.
//!
//! # From text to plan
//!
//! `raw` has a type for each table of the file, and defines every key once, with its doc comment: the parser (`keys`,
//! `value`), the reference (`reference`) and the JSON schema (`schema`) are generated from that. `resolve` turns the
//! keys into a [`ServerPlan`] of valid values, and reports all mistakes of the files in one run (`diagnostics`). The
//! plan holds the settings of the services themselves, such as `LocationSettings`, `PhpSettings` and `ProxySettings`;
//! only static files have a `FilesPlan`, because apus-files owns memory of the process.
//! `crates/server/server/src/assemble` makes services of the plan.
//!
//! - `include`, `environment`, `files`, `source`: the texts that a configuration is made of. `geo_files`: databases of places.
//! - `equivalents`, `value_advice`: what to write for names and forms of nginx, Caddy and Apache. `plan_changes`: what
//!   a reload changes. `hidden_secrets`: what is hidden where a text is shown.
//!
//! A new key is a field in `raw`, its meaning in `resolve`, and then what it configures.
//!
//! # Decisions
//!
//! - **A file with a mistake changes nothing**: a plan exists only if every file is valid, and a reload replaces a plan
//!   by a plan.
//! - **A mistake hides no other one**, also if the syntax is wrong, and none is reported twice (`diagnostics`): what a
//!   site says wrong, its locations inherit.
//!
//! # Tests
//!
//! `tests/it`: `keys` has each key, `messages.json` the diagnostics; `documents` compares the generated pages, and
//! writes them anew with `APUS_BLESS=1`.

#![forbid(unsafe_code)]

mod date_time;
mod description;
mod diagnostics;
mod environment;
mod equivalents;
mod fetched_key_sets;
mod files;
mod geo_files;
mod hidden_secrets;
mod include;
mod keys;
mod listener_spans;
mod origin_handle;
mod plan;
mod plan_changes;
mod private_files;
mod raw;
mod reference;
mod resolve;
mod schema;
mod size;
mod source;
mod string_type;
mod syntax;
mod table_schema;
mod template_names;
mod value;
mod value_advice;
mod variables;
mod when;

use std::error::Error;
use std::path::Path;

pub use diagnostics::{Diagnostics, Severity};
pub use equivalents::equivalents;
pub use fetched_key_sets::FetchedKeySets;
pub use files::{ConfigFiles, Recording};
pub use hidden_secrets::HiddenSecrets;
pub use listener_spans::ListenerSpans;
pub use origin_handle::OriginHandle;
pub use plan::{
    AccessLogPlan, AdminPlan, AdminTlsPlan, BanPlan, BotPlan, CacheStorePlan, CertificateOrigin,
    FilesPlan, FilesRoot, GlitchPlan, GlobalPlan, HandlerPlan, ListenerPlan, LocationPlan,
    LogLevel, OnDemandPlan, OtlpPlan, PhpPlan, ProxyPlan, ServerPlan, SitePlan, TracePlan,
    UpstreamPlan,
};
pub use plan_changes::changes;
pub use reference::reference;
pub use resolve::{default_pool_folder, tiers_of_text};
pub use schema::schema;
pub use variables::variables;

use keys::ConfigReader;
use reference::tables_with;
use source::SourceFile;

/// Issues a certificate for these host names and addresses, for a site with TLS that names none. Returns
/// the certificate and its private key as PEM.
pub type LocalCertificates<'a> = &'a dyn Fn(&[String]) -> Result<Vec<u8>, Box<dyn Error>>;

/// Reads the configuration file `path` and what it includes.
///
/// # Errors
/// All errors in it.
pub fn load(path: &Path) -> Result<ServerPlan, Diagnostics> {
    load_with(path, None, &ConfigFiles::default())
}

/// As [`load`], from `files`. Without `local_certificates`, a TLS listener without a certificate is an
/// error.
pub fn load_with(
    path: &Path,
    local_certificates: Option<LocalCertificates<'_>>,
    files: &ConfigFiles,
) -> Result<ServerPlan, Diagnostics> {
    let variable = |name: &str| std::env::var(name).ok();
    read(
        ConfigReader::new(&variable, local_certificates, files, tables_with),
        |reader| include::load(path, reader),
    )
}

/// Reads a configuration from memory. `name` is its name in messages, relative paths are relative to
/// `folder`, and `variable` reads the environment.
///
/// # Errors
/// All errors in it.
pub fn parse_str(
    text: &str,
    name: &str,
    folder: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<ServerPlan, Diagnostics> {
    let files = ConfigFiles::default();
    read(
        ConfigReader::new(variable, None, &files, tables_with),
        |reader| include::parse(SourceFile::from_memory(text, name, folder), reader),
    )
}

/// As [`parse_str`], without an environment.
pub fn parse_with(
    text: &str,
    name: &str,
    folder: &Path,
    local_certificates: Option<LocalCertificates<'_>>,
) -> Result<ServerPlan, Diagnostics> {
    let files = ConfigFiles::default();
    read(
        ConfigReader::new(&|_| None, local_certificates, &files, tables_with),
        |reader| include::parse(SourceFile::from_memory(text, name, folder), reader),
    )
}

fn read(
    mut reader: ConfigReader<'_>,
    file: impl FnOnce(&mut ConfigReader<'_>) -> Option<raw::File>,
) -> Result<ServerPlan, Diagnostics> {
    // Without the lines that have errors of syntax, keys may seem to contradict each other.
    let plan = file(&mut reader)
        .filter(|_| !reader.is_partial)
        .and_then(|file| resolve::plan(file, &mut reader));
    if reader.is_partial {
        reader.say_that_more_may_follow();
    }
    let private = plan
        .as_ref()
        .map(|plan| private_files::find(plan, &mut reader));
    let diagnostics = Diagnostics {
        sources: reader.sources,
        findings: reader.findings,
    }
    .in_order();
    match plan {
        Some(plan) if diagnostics.errors() == 0 => Ok(ServerPlan {
            warnings: diagnostics,
            private: private.unwrap_or_default(),
            ..plan
        }),
        _ => Err(diagnostics),
    }
}
