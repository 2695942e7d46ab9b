//! The files of a configuration that no site sends, and warnings about roots that contain them.

use std::path::{Path, PathBuf};

use apus_private_files::PrivateFiles;

use super::diagnostics::Finding;
use super::keys::ConfigReader;
use super::plan::ServerPlan;

/// The number of files that a warning names.
const NAMED: usize = 3;

/// The private files of a plan: the configuration, keys and passwords, logs, and the folders of
/// certificates, of qlog files and of the cache.
pub(super) fn find(plan: &ServerPlan, reader: &mut ConfigReader<'_>) -> PrivateFiles {
    let mut private = PrivateFiles::default();
    for path in reader.files.secrets() {
        private = private.file(path);
    }
    let logs = plan
        .sites
        .iter()
        .filter_map(|site| site.access_log.as_ref());
    for path in logs.filter_map(|log| log.settings.file.as_ref()) {
        private = private.file(path);
    }
    if let Some(path) = &plan.global.tls_key_log {
        private = private.file(path);
    }
    let http3 = plan.sites.iter().filter_map(|site| site.http3.as_ref());
    for folder in http3.filter_map(|http3| http3.qlog.as_ref()) {
        private = private.folder(folder);
    }
    if let Some(folder) = &plan.global.acme_folder {
        private = private.folder(folder);
    }
    if let Some(disk) = plan.caches().next().and(plan.global.cache.disk.as_ref()) {
        private = private.folder(&disk.path);
    }
    warn(&private, reader);
    for folder in reader.sources.folders() {
        // The text of a configuration in memory is probably from this file.
        private = private
            .file(folder.join("apus.toml"))
            .file(folder.join(".env"));
    }
    private
}

/// Warns about roots with private files.
fn warn(private: &PrivateFiles, reader: &mut ConfigReader<'_>) {
    for (span, root) in std::mem::take(&mut reader.roots) {
        let Ok(real) = root.canonicalize() else {
            continue;
        };
        let mut files: Vec<PathBuf> = private.below(&real).collect();
        files.sort();
        files.dedup();
        let names = files.iter().take(NAMED).map(|path| {
            let name = path.strip_prefix(&real).unwrap_or(path);
            if name == Path::new("") {
                path.display().to_string()
            } else {
                name.display().to_string()
            }
        });
        let mut names = names.collect::<Vec<_>>().join(", ");
        match files.len().saturating_sub(NAMED) {
            _ if files.is_empty() => continue,
            0 => {}
            more => names += &format!(" and {more} more"),
        }
        let title = format!("private files of the server are below {}", real.display());
        let finding = Finding::warning(&span, title, names)
            .help("they are not sent, but a folder with nothing else than public files is safer");
        reader.report(finding);
    }
}
