//! `apus.toml`: read, checked as a whole, and resolved into a [`Plan`].
//!
//! The keys are defined once, in `raw`, with the macros of `keys`; the parser, the reference and the
//! JSON schema all come from there. Reading goes in two steps: `raw` mirrors the files and knows
//! where each value stands; [`Plan`] holds what it means. No mistake hides another: each is noted
//! with its place, and all are told at the end.

mod diagnostics;
mod environment;
mod files;
mod include;
mod keys;
mod listening;
mod plan;
mod raw;
mod reference;
mod resolve;
mod schema;
mod source;
mod table_schema;
mod value;
mod word;

use std::path::Path;

pub use diagnostics::{Diagnostics, Severity};
pub use files::{ConfigFiles, Recording};
pub use listening::ListenPlaces;
pub use plan::{
    AccessLog, CacheStore, Content, ErrorPage, Files, Global, Handler, Listener, Location,
    LogLevel, Php, Plan, Proxy, Root, Site, Upstream,
};
pub use reference::reference;
pub use resolve::default_pool_folder;
pub use schema::schema;

use keys::Reader;
use reference::tables_with;
use source::Source;

/// Makes the certificate, with its private key, PEM, of a site that listens with TLS and names none;
/// gets the host names and addresses that it has to be for.
pub type LocalCertificates<'a> = &'a dyn Fn(&[String]) -> Result<Vec<u8>, String>;

/// Reads the configuration file `path` and what it includes.
///
/// # Errors
/// All mistakes that are in it.
pub fn load(path: &Path) -> Result<Plan, Diagnostics> {
    load_with(path, None, &ConfigFiles::default())
}

/// As [`load`], from `files`; without `local_certificates`, a TLS listener without a certificate is a
/// mistake.
pub fn load_with(
    path: &Path,
    local_certificates: Option<LocalCertificates<'_>>,
    files: &ConfigFiles,
) -> Result<Plan, Diagnostics> {
    let variable = |name: &str| std::env::var(name).ok();
    read(
        Reader::new(&variable, local_certificates, files, tables_with),
        |reader| include::load(path, reader),
    )
}

/// Reads a configuration from memory. `name` is what messages call it, relative paths are relative
/// to `folder`, and `variable` is the environment.
///
/// # Errors
/// All mistakes that are in it.
pub fn parse_str(
    text: &str,
    name: &str,
    folder: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Plan, Diagnostics> {
    let files = ConfigFiles::default();
    read(Reader::new(variable, None, &files, tables_with), |reader| {
        include::parse(Source::from_memory(text, name, folder), reader)
    })
}

/// As [`parse_str`], without an environment.
pub fn parse_with(
    text: &str,
    name: &str,
    folder: &Path,
    local_certificates: Option<LocalCertificates<'_>>,
) -> Result<Plan, Diagnostics> {
    let files = ConfigFiles::default();
    read(
        Reader::new(&|_| None, local_certificates, &files, tables_with),
        |reader| include::parse(Source::from_memory(text, name, folder), reader),
    )
}

fn read(
    mut reader: Reader<'_>,
    file: impl FnOnce(&mut Reader<'_>) -> Option<raw::File>,
) -> Result<Plan, Diagnostics> {
    let plan = file(&mut reader).and_then(|file| resolve::plan(file, &mut reader));
    let diagnostics = Diagnostics {
        sources: reader.sources,
        findings: reader.findings,
    }
    .in_order();
    match plan {
        Some(plan) if diagnostics.errors() == 0 => Ok(Plan {
            warnings: diagnostics,
            ..plan
        }),
        _ => Err(diagnostics),
    }
}
