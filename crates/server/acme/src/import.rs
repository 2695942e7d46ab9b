//! Certificates that other programs have ordered: the folders of certbot, acme.sh and Caddy.
//!
//! ```text
//! certbot   live/NAME/fullchain.pem, privkey.pem       renewal/NAME.conf: server = URL
//! acme.sh   NAME[_ecc]/fullchain.cer, NAME.key         NAME.conf: Le_API='URL'
//! Caddy     certificates/ISSUER/NAME/NAME.crt, .key    NAME.json: "ca": "URL"
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use apus_net::read_trusted_file;
use apus_transport::tls::{Certificate, CertificateError};
use serde::Serialize;
use time::OffsetDateTime;

use crate::issue_error::IssueError;
use crate::provider::AcmeProvider;
use crate::settings::ManagedCertificate;
use crate::state::CertificateState;
use crate::store::{CertificateStore, CertificateStoreError};

/// The largest file of a certificate, a key or settings that is read, in bytes.
const LARGEST_FILE: u64 = 1 << 20;

/// The certificates of a folder of another program, read into memory.
#[derive(Debug, Default)]
pub struct ForeignCertificates {
    certificates: Vec<ForeignCertificate>,
    /// Files that cannot be used, and why.
    pub faults: Vec<String>,
}

struct ForeignCertificate {
    file: PathBuf,
    certificate: Certificate,
    chain: String,
    key: String,
    provider: Option<AcmeProvider>,
}

impl std::fmt::Debug for ForeignCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForeignCertificate")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// What an import did for the certificate of a site.
#[derive(Clone, Debug, Serialize)]
pub struct ImportedCertificate {
    /// The names of the certificate.
    pub names: Vec<String>,
    /// What was done.
    pub result: ImportResult,
    /// The file with the chain that was found.
    pub from: Option<PathBuf>,
}

/// What an import did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImportResult {
    /// The certificate was stored.
    Imported,
    /// The store has one that expires later or at the same time.
    Kept,
    /// The folder has no valid certificate for exactly these names.
    NotFound,
}

impl ForeignCertificates {
    /// Reads the folder of certbot, acme.sh or Caddy.
    ///
    /// # Errors
    /// The folder belongs to none of them, or cannot be read.
    pub fn read(folder: &Path) -> Result<Self, CertificateStoreError> {
        let mut found = Self::default();
        let mut is_known = false;
        if folder.join("live").is_dir() {
            is_known = true;
            for live in subfolders(&folder.join("live"))? {
                let name = file_name(&live);
                let conf = folder.join("renewal").join(format!("{name}.conf"));
                found.add(
                    live.join("fullchain.pem"),
                    &live.join("privkey.pem"),
                    setting(&conf, "server"),
                );
            }
        }
        if folder.join("certificates").is_dir() {
            is_known = true;
            for issuer in subfolders(&folder.join("certificates"))? {
                for of_name in subfolders(&issuer)? {
                    let name = file_name(&of_name);
                    found.add(
                        of_name.join(format!("{name}.crt")),
                        &of_name.join(format!("{name}.key")),
                        authority_of_caddy(&of_name.join(format!("{name}.json"))),
                    );
                }
            }
        }
        if !is_known {
            for of_name in subfolders(folder)? {
                let chain = of_name.join("fullchain.cer");
                if !chain.exists() {
                    continue;
                }
                is_known = true;
                let full = file_name(&of_name);
                let name = full.strip_suffix("_ecc").unwrap_or(&full);
                found.add(
                    chain,
                    &of_name.join(format!("{name}.key")),
                    setting(&of_name.join(format!("{name}.conf")), "Le_API"),
                );
            }
        }
        if is_known {
            Ok(found)
        } else {
            Err(CertificateStoreError::Damaged(
                folder.to_owned(),
                "expected a folder of certbot (live/), acme.sh (NAME/fullchain.cer) or Caddy (certificates/)"
                    .to_owned(),
            ))
        }
    }

    fn add(&mut self, file: PathBuf, key_file: &Path, directory: Option<String>) {
        let read = |path: &Path| {
            read_trusted_file(path, LARGEST_FILE)
                .map_err(|error| format!("{}: {error}", path.display()))
        };
        let pair = read(&file).and_then(|chain| Ok((chain, read(key_file)?)));
        let result = pair.and_then(|(chain, key)| {
            let certificate = Certificate::from_pem(&chain, &key).map_err(|error| {
                let fault_of_key = matches!(
                    error,
                    CertificateError::Key(_) | CertificateError::UnreadableKey(_)
                );
                let at = if fault_of_key { key_file } else { &file }.display();
                format!("{at}: {error}").replace("FILE", &at.to_string())
            })?;
            let text = |bytes| {
                String::from_utf8(bytes).map_err(|_| format!("{}: it is not UTF-8", file.display()))
            };
            let (chain, key) = (text(chain)?, text(key)?);
            Ok(ForeignCertificate {
                certificate,
                chain,
                key,
                provider: directory.as_deref().and_then(AcmeProvider::find),
                file,
            })
        });
        match result {
            Ok(certificate) => self.certificates.push(certificate),
            Err(fault) => self.faults.push(fault),
        }
    }

    /// Stores the best certificate for the names of one that a configuration would order, while no other process orders it.
    pub(crate) fn import_one(
        &self,
        store: &CertificateStore,
        managed: &ManagedCertificate,
    ) -> Result<ImportedCertificate, IssueError> {
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let best = self
            .certificates
            .iter()
            .filter(|one| has_exactly(one.certificate.names(), &managed.names))
            .filter(|one| one.certificate.not_after() > now)
            .max_by_key(|one| one.certificate.not_after());
        let report = |result, from: Option<&ForeignCertificate>| ImportedCertificate {
            names: managed.names.clone(),
            result,
            from: from.map(|one| one.file.clone()),
        };
        let Some(best) = best else {
            return Ok(report(ImportResult::NotFound, None));
        };
        let own = store.certificate(managed).ok().flatten();
        if own.is_some_and(|own| own.not_after() >= best.certificate.not_after()) {
            return Ok(report(ImportResult::Kept, Some(best)));
        }
        store.put_certificate(managed, &best.chain, &best.key)?;
        store.remove_pending_key(managed)?;
        let state = CertificateState {
            issued_by: best
                .provider
                .as_ref()
                .map(|provider| provider.directory.clone()),
            ..CertificateState::default()
        };
        store.put_state(managed, &state)?;
        Ok(report(ImportResult::Imported, Some(best)))
    }

    /// The names of certificates that none of these sites orders, each with its file.
    pub fn unused<'a>(
        &'a self,
        managed: &'a [ManagedCertificate],
    ) -> impl Iterator<Item = (&'a Path, String)> {
        let is_used = |one: &&ForeignCertificate| {
            managed
                .iter()
                .any(|managed| has_exactly(one.certificate.names(), &managed.names))
        };
        self.certificates
            .iter()
            .filter(move |one| !is_used(one))
            .map(|one| (one.file.as_path(), one.certificate.names().join(" ")))
    }
}

/// Whether a certificate is for these names and no others.
fn has_exactly(has: &[Box<str>], names: &[String]) -> bool {
    let is_covered = |name: &String| has.iter().any(|has| **has == **name);
    names.iter().all(is_covered)
        && has
            .iter()
            .all(|has| names.iter().any(|name| **name == **has))
}

/// The folders in a folder, in the order of their names.
fn subfolders(folder: &Path) -> Result<Vec<PathBuf>, CertificateStoreError> {
    let failed = |error: io::Error| CertificateStoreError::Io(folder.to_owned(), error);
    let mut found = fs::read_dir(folder)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    found.retain(|path| path.is_dir());
    found.sort();
    Ok(found)
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The value of a setting in a file with lines such as `name = value` or `name='value'`.
fn setting(file: &Path, name: &str) -> Option<String> {
    let text = String::from_utf8(read_trusted_file(file, LARGEST_FILE).ok()?).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        let value = value.trim().trim_matches(['\'', '"']);
        (key.trim() == name).then(|| value.to_owned())
    })
}

/// The authority in the notes of Caddy.
fn authority_of_caddy(file: &Path) -> Option<String> {
    let json: serde_json::Value =
        serde_json::from_slice(&read_trusted_file(file, LARGEST_FILE).ok()?).ok()?;
    let authority = json.get("issuer_data")?.get("ca")?.as_str()?;
    Some(authority.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::AcmeSettings;

    fn write(path: PathBuf, text: impl AsRef<[u8]>) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A certificate for these names, and its key.
    fn pair(names: &[&str]) -> (String, String) {
        let authority = apus_testkit::CertificateAuthority::generate();
        let made = authority.ecdsa(names);
        (made.pem, made.key)
    }

    fn managed(names: &[&str]) -> ManagedCertificate {
        ManagedCertificate {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            settings: AcmeSettings::default(),
            is_additional: false,
        }
    }

    /// Imports into an empty store, and returns the result and the directory of the authority.
    fn imported(folder: &Path, names: &[&str]) -> (ImportResult, Option<String>) {
        let place = tempfile::tempdir().unwrap();
        let store = CertificateStore::in_folder(place.path());
        let managed = managed(names);
        let foreign = ForeignCertificates::read(folder).unwrap();
        assert_eq!(foreign.faults, Vec::<String>::new());
        let import = || foreign.import_one(&store, &managed).unwrap().result;
        let result = import();
        if result == ImportResult::Imported {
            assert!(store.certificate(&managed).unwrap().is_some());
            assert_eq!(import(), ImportResult::Kept);
            assert_eq!(store.exposed().unwrap(), Vec::<PathBuf>::new());
        }
        (result, store.state(&managed).unwrap().issued_by)
    }

    #[test]
    fn the_folder_of_certbot_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (chain, key) = pair(&["example.com", "www.example.com"]);
        let live = folder.path().join("live/example.com");
        write(folder.path().join("live/README"), "not a folder");
        write(live.join("fullchain.pem"), chain);
        write(live.join("privkey.pem"), key);
        write(
            folder.path().join("renewal/example.com.conf"),
            "version = 2.9.0\n[renewalparams]\nserver = https://acme-v02.api.letsencrypt.org/directory\n",
        );
        let names = ["www.example.com", "example.com"];
        let (result, issued_by) = imported(folder.path(), &names);
        assert_eq!(result, ImportResult::Imported);
        assert_eq!(issued_by, Some(AcmeProvider::default().directory));
        let (result, _) = imported(folder.path(), &["example.com"]);
        assert_eq!(result, ImportResult::NotFound);
        let foreign = ForeignCertificates::read(folder.path()).unwrap();
        assert_eq!(foreign.unused(&[managed(&["example.com"])]).count(), 1);
        assert_eq!(foreign.unused(&[managed(&names)]).count(), 0);
    }

    #[test]
    fn the_folder_of_acme_sh_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (chain, key) = pair(&["example.com"]);
        let own = folder.path().join("example.com_ecc");
        write(own.join("fullchain.cer"), chain);
        write(own.join("example.com.key"), key);
        write(
            own.join("example.com.conf"),
            "Le_Domain='example.com'\nLe_API='https://acme.zerossl.com/v2/DV90'\n",
        );
        write(folder.path().join("dnsapi/dns_cf.sh"), "");
        let (result, issued_by) = imported(folder.path(), &["example.com"]);
        assert_eq!(result, ImportResult::Imported);
        assert_eq!(
            issued_by.as_deref(),
            Some("https://acme.zerossl.com/v2/DV90")
        );
    }

    #[test]
    fn the_folder_of_caddy_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (chain, key) = pair(&["*.example.com"]);
        let own = folder
            .path()
            .join("certificates/acme-v02.api.letsencrypt.org-directory/wildcard_.example.com");
        write(own.join("wildcard_.example.com.crt"), chain);
        write(own.join("wildcard_.example.com.key"), key);
        write(
            own.join("wildcard_.example.com.json"),
            r#"{"sans": ["*.example.com"], "issuer_data": {"ca": "https://acme-v02.api.letsencrypt.org/directory"}}"#,
        );
        let (result, issued_by) = imported(folder.path(), &["*.example.com"]);
        assert_eq!(result, ImportResult::Imported);
        assert_eq!(issued_by, Some(AcmeProvider::default().directory));
    }

    #[test]
    fn a_key_of_another_certificate_is_reported_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let live = folder.path().join("live/example.com");
        let (chain, _) = pair(&["example.com"]);
        let (_, key) = pair(&["example.com"]);
        write(live.join("fullchain.pem"), chain);
        write(live.join("privkey.pem"), &key);
        let foreign = ForeignCertificates::read(folder.path()).unwrap();
        let secret = key.lines().nth(1).unwrap();
        let fault = &foreign.faults[0];
        assert!(fault.contains("belongs to another"), "{fault}");
        assert!(!format!("{foreign:?}").contains(secret));
        let error = ForeignCertificates::read(&live).unwrap_err().to_string();
        assert!(error.contains("expected a folder of certbot"), "{error}");
    }
}
