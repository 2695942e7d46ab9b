//! The configuration that `apus serve DIR` stands for.

use std::path::{Path, PathBuf};

use super::diagnostics::{Diagnostics, Finding};
use super::plan::Plan;

/// How a folder is served.
#[derive(Clone, Debug, Default)]
pub struct ServeDir {
    /// Where to listen, written as the key `listen`; `127.0.0.1:8080` if there is none, and with TLS
    /// `127.0.0.1:8443`.
    pub listen: Option<String>,
    /// Worker threads; one per core if there is no number.
    pub workers: Option<u16>,
    /// Certificate and key in PEM files, to serve with TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
}

/// The plan that serves the folder `dir`, with a listing where there is no index file.
///
/// # Errors
/// The folder, the address, the certificate or the key cannot be used.
pub fn serve_dir(dir: &Path, options: &ServeDir) -> Result<Plan, Diagnostics> {
    let text = text(dir, options).map_err(|path| Diagnostics {
        findings: vec![Finding::nowhere(format!(
            "the path {} is not UTF-8",
            path.display()
        ))],
        ..Diagnostics::default()
    })?;
    let here = std::env::current_dir().unwrap_or_default();
    super::parse_str(&text, "apus serve", &here, &|_| None)
}

/// The configuration file that says the same. `Err` is a path that no such file can hold.
fn text<'a>(dir: &'a Path, options: &'a ServeDir) -> Result<String, &'a Path> {
    let path = |path: &'a Path| path.to_str().map(quoted).ok_or(path);
    let (key, default) = match options.tls {
        Some(_) => ("listen_tls", "127.0.0.1:8443"),
        None => ("listen", "127.0.0.1:8080"),
    };
    let mut text = format!(
        "[global]\nworker_threads = {}\n\n[[sites]]\nname = \"files\"\nroot = {}\nlisting = true\n\
         {key} = {}\n",
        options.workers.unwrap_or(0),
        path(dir)?,
        quoted(options.listen.as_deref().unwrap_or(default)),
    );
    if let Some((cert, key)) = &options.tls {
        text.push_str(&format!(
            "\n[sites.tls]\ncert = {}\nkey = {}\n",
            path(cert)?,
            path(key)?
        ));
    }
    Ok(text)
}

/// `text` as a TOML string in which nothing is read from the environment.
fn quoted(text: &str) -> String {
    toml::Value::from(text.replace("${", "$${")).to_string()
}
