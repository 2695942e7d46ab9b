//! The local certificate authority behind `--tls`.
//!
//! Its root is made once per user; it signs certificates for the names that a developer's browser
//! uses.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{env, fmt};

use apus_private_files::{PrivateFiles, register};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};

/// The names that every certificate has.
const ALWAYS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

const ROOT_LIFETIME: Duration = Duration::days(3650);
const LEAF_LIFETIME: Duration = Duration::days(90);

/// A certificate is renewed when less than this time is left.
const RENEW_BEFORE: Duration = Duration::days(30);

/// A certificate is valid from this time before now, for clients whose clock is slow.
const BACKDATED: Duration = Duration::days(1);

/// A local certificate authority in a separate folder.
#[derive(Clone, Debug)]
pub struct LocalCa {
    folder: PathBuf,
}

/// A certificate of the local authority, ready to use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalCertificate {
    /// A file with the certificate and its private key, PEM; only the user can read it.
    pub pem_file: PathBuf,
    /// The root that clients have to trust, PEM.
    pub root_file: PathBuf,
    /// Whether the certificate was issued now, rather than found.
    pub is_new: bool,
    /// Whether the root was created now, so that no client trusts it yet.
    pub is_new_root: bool,
}

impl LocalCa {
    /// The authority of this user: in `$XDG_DATA_HOME/apus/ca`, by default
    /// `~/.local/share/apus/ca`.
    ///
    /// # Errors
    /// The environment names no home folder.
    pub fn of_user() -> Result<Self, LocalCaError> {
        let absolute = |name| {
            let path = PathBuf::from(env::var_os(name)?);
            path.is_absolute().then_some(path)
        };
        let data = absolute("XDG_DATA_HOME")
            .or_else(|| Some(absolute("HOME")?.join(".local/share")))
            .ok_or(LocalCaError::NoHome)?;
        Ok(Self::in_folder(data.join("apus/ca")))
    }

    /// The authority in this folder, which is created when it is needed.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        register(PrivateFiles::default().folder(&folder));
        Self { folder }
    }

    /// A certificate for `hosts` (names and addresses), this machine's name, `localhost` and the
    /// loopback addresses. An existing one is used unless it expires soon.
    ///
    /// # Errors
    /// The folder cannot be written, or its files were changed.
    pub fn certificate(&self, hosts: &[String]) -> Result<LocalCertificate, LocalCaError> {
        self.certificate_at(hosts, OffsetDateTime::now_utc())
    }

    fn certificate_at(
        &self,
        hosts: &[String],
        now: OffsetDateTime,
    ) -> Result<LocalCertificate, LocalCaError> {
        let names = names(hosts);
        let failed = |error| LocalCaError::Io(self.folder.clone(), error);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .map_err(failed)?;
        // Another process may have created it while this one waited for the lock.
        let _locked = lock(&self.folder.join("lock")).map_err(failed)?;
        let (root, root_pem, is_new_root) = self.root(now)?;
        let pem_file = self.folder.join(format!("{}.pem", file_stem(&names)));
        let mut certificate = LocalCertificate {
            root_file: self.root_file(),
            is_new: false,
            is_new_root,
            pem_file,
        };
        let kept = fs::read(&certificate.pem_file).ok();
        if is_new_root || !kept.is_some_and(|kept| is_good(&kept, &root_pem, &names, now)) {
            let pem = leaf(&root, names, now)?;
            replace(&certificate.pem_file, &pem)
                .map_err(|error| LocalCaError::Io(certificate.pem_file.clone(), error))?;
            certificate.is_new = true;
        }
        Ok(certificate)
    }

    fn root_file(&self) -> PathBuf {
        self.folder.join("root.pem")
    }

    /// The root certificate: the existing one, or a new one. It is never overwritten.
    fn root(
        &self,
        now: OffsetDateTime,
    ) -> Result<(Issuer<'static, KeyPair>, String, bool), LocalCaError> {
        let (cert_file, key_file) = (self.root_file(), self.folder.join("root.key"));
        let (cert, key) = (read(&cert_file)?, read(&key_file)?);
        let (cert, key, is_new) = match (cert, key) {
            (Some(cert), Some(key)) => (cert, key, false),
            (Some(_), None) => return Err(LocalCaError::KeyMissing(cert_file)),
            (None, key) => {
                // A key without a certificate is left by a process that was killed in between.
                let key = match key {
                    Some(key) => key,
                    None => {
                        let key = KeyPair::generate()?.serialize_pem();
                        create(&key_file, &key, 0o600)?;
                        key
                    }
                };
                let cert = root_params(now)
                    .self_signed(&KeyPair::from_pem(&key)?)?
                    .pem();
                create(&cert_file, &cert, 0o644)?;
                (cert, key, true)
            }
        };
        let der = first_certificate(cert.as_bytes())
            .ok_or_else(|| LocalCaError::Foreign(cert_file.clone()))?;
        let (_, parsed) = X509Certificate::from_der(&der)
            .map_err(|_| LocalCaError::Foreign(cert_file.clone()))?;
        if parsed.validity().not_after.timestamp() < (now + LEAF_LIFETIME).unix_timestamp() {
            return Err(LocalCaError::Expired(self.folder.clone()));
        }
        let key = KeyPair::from_pem(&key).map_err(|_| LocalCaError::Foreign(key_file))?;
        if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(LocalCaError::Foreign(cert_file));
        }
        Ok((Issuer::from_ca_cert_pem(&cert, key)?, cert, is_new))
    }
}

/// A self-signed certificate for `hosts` with its key as PEM, in memory: for checking a
/// configuration.
///
/// # Errors
/// A name is invalid in a certificate.
pub(crate) fn passing_certificate(hosts: &[String]) -> Result<String, LocalCaError> {
    let key = KeyPair::generate()?;
    let cert = leaf_params(names(hosts), OffsetDateTime::now_utc())?.self_signed(&key)?;
    Ok(cert.pem() + &key.serialize_pem())
}

impl LocalCertificate {
    /// Instructions to make browsers and other programs trust the certificate.
    pub fn how_to_trust(&self) -> String {
        let root = self.root_file.display();
        format!(
            "Browsers warn until they trust this machine's own certificate authority:\n  \
             {root}\n\
             \x20 curl      curl --cacert {root} https://localhost/\n\
             \x20 Debian    sudo cp {root} /usr/local/share/ca-certificates/apus-local.crt \
             && sudo update-ca-certificates\n\
             \x20 Fedora    sudo trust anchor {root}\n\
             \x20 macOS     security add-trusted-cert -k ~/Library/Keychains/login.keychain-db {root}\n\
             \x20 Firefox   Settings, Privacy & Security, View Certificates, Authorities, Import"
        )
    }
}

/// The names of a certificate: the requested ones and the names of this machine.
fn names(hosts: &[String]) -> Vec<String> {
    let machine = rustix::system::uname()
        .nodename()
        .to_str()
        .map(str::to_ascii_lowercase)
        .unwrap_or_default();
    let mut names: Vec<String> = ALWAYS.map(str::to_owned).into();
    for name in hosts.iter().chain([&machine]) {
        let name = name.trim_matches(['[', ']']).to_ascii_lowercase();
        // Clients do not connect to a wildcard address.
        let is_useful = !matches!(name.as_str(), "" | "0.0.0.0" | "::") && is_name(&name);
        if is_useful && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'*' | b'_')
    })
}

/// The file name of a certificate: readable, and unique for its names.
fn file_stem(names: &[String]) -> String {
    // FNV-1a, which is stable across releases.
    let hash = names
        .iter()
        .flat_map(|name| name.bytes().chain([b' ']))
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    let first = names.get(ALWAYS.len()).map_or("local", String::as_str);
    let first: String = first.replace(['*', ':'], "_").chars().take(64).collect();
    format!("{first}-{hash:016x}")
}

fn root_params(now: OffsetDateTime) -> CertificateParams {
    let user = env::var("USER").unwrap_or_default();
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_string_lossy();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(
        DnType::CommonName,
        format!("Apus local CA {user}@{machine}"),
    );
    params
        .distinguished_name
        .push(DnType::OrganizationName, "Apus local CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = now - BACKDATED;
    params.not_after = now + ROOT_LIFETIME;
    params
}

fn leaf(
    root: &Issuer<'_, KeyPair>,
    names: Vec<String>,
    now: OffsetDateTime,
) -> Result<String, LocalCaError> {
    let key = KeyPair::generate()?;
    let cert = leaf_params(names, now)?.signed_by(&key, root)?;
    Ok(cert.pem() + &key.serialize_pem())
}

fn leaf_params(names: Vec<String>, now: OffsetDateTime) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "Apus local certificate");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.not_before = now - BACKDATED;
    params.not_after = now + LEAF_LIFETIME;
    Ok(params)
}

/// Whether a stored certificate is signed by this root, has these names, and is valid long enough.
fn is_good(pem: &[u8], root_pem: &str, names: &[String], now: OffsetDateTime) -> bool {
    let (Some(leaf), Some(root)) = (
        first_certificate(pem),
        first_certificate(root_pem.as_bytes()),
    ) else {
        return false;
    };
    let (Ok((_, leaf)), Ok((_, root))) = (
        X509Certificate::from_der(&leaf),
        X509Certificate::from_der(&root),
    ) else {
        return false;
    };
    let issuer = leaf
        .iter_extensions()
        .find_map(|ext| match ext.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                id.key_identifier.as_ref().map(|id| id.0)
            }
            _ => None,
        });
    let root_id = root
        .iter_extensions()
        .find_map(|ext| match ext.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
            _ => None,
        });
    let Ok(Some(alternatives)) = leaf.subject_alternative_name() else {
        return false;
    };
    let has = |name: &String| {
        alternatives
            .value
            .general_names
            .iter()
            .any(|known| match known {
                GeneralName::DNSName(known) => known == name,
                GeneralName::IPAddress(known) => match name.parse() {
                    Ok(std::net::IpAddr::V4(address)) => address.octets() == **known,
                    Ok(std::net::IpAddr::V6(address)) => address.octets() == **known,
                    Err(_) => false,
                },
                _ => false,
            })
    };
    issuer.is_some()
        && issuer == root_id
        && leaf.validity().not_after.timestamp() > (now + RENEW_BEFORE).unix_timestamp()
        && names.iter().all(has)
}

fn first_certificate(pem: &[u8]) -> Option<Vec<u8>> {
    x509_parser::pem::Pem::iter_from_buffer(pem)
        .filter_map(Result::ok)
        .find(|block| block.label == "CERTIFICATE")
        .map(|block| block.contents)
}

fn read(path: &Path) -> Result<Option<String>, LocalCaError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LocalCaError::Io(path.to_owned(), error)),
    }
}

/// A lock of the folder, held until it is dropped.
fn lock(path: &Path) -> io::Result<File> {
    let file = private(OpenOptions::new().write(true).create(true)).open(path)?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

/// Writes a new file atomically.
fn create(path: &Path, text: &str, mode: u32) -> Result<(), LocalCaError> {
    let failed = |error| LocalCaError::Io(path.to_owned(), error);
    let temporary = write_temporary(path, text, mode).map_err(failed)?;
    let linked = fs::hard_link(&temporary, path);
    let _ = fs::remove_file(&temporary);
    linked.map_err(failed)
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let temporary = write_temporary(path, text, 0o600)?;
    fs::rename(temporary, path)
}

fn write_temporary(path: &Path, text: &str, mode: u32) -> io::Result<PathBuf> {
    let temporary = path.with_extension("new");
    // The file may be left by a killed process; the lock excludes others.
    let _ = fs::remove_file(&temporary);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(temporary)
}

/// There is no local certificate.
#[derive(Debug)]
#[non_exhaustive]
pub enum LocalCaError {
    /// Neither `XDG_DATA_HOME` nor `HOME` names a folder.
    NoHome,
    /// A file or folder cannot be read or written.
    Io(PathBuf, io::Error),
    /// The root certificate exists, but its key is missing.
    KeyMissing(PathBuf),
    /// A file was changed.
    Foreign(PathBuf),
    /// The root in this folder expires.
    Expired(PathBuf),
    /// A certificate could not be created.
    Certificate(rcgen::Error),
    /// The privileged helper reports this error.
    Helper(String),
}

impl From<rcgen::Error> for LocalCaError {
    fn from(error: rcgen::Error) -> Self {
        Self::Certificate(error)
    }
}

impl fmt::Display for LocalCaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHome => f.write_str(
                "the local certificate authority needs a home: set HOME or XDG_DATA_HOME to an \
                 absolute path",
            ),
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::KeyMissing(path) => write!(
                f,
                "{} has no root.key beside it; put the key back, or remove the certificate to get \
                 a new pair",
                path.display()
            ),
            Self::Foreign(path) => write!(
                f,
                "{} is not the local authority's; remove root.pem and root.key to get a new pair",
                path.display()
            ),
            Self::Expired(folder) => write!(
                f,
                "the local authority in {} expires; remove root.pem and root.key to get a new pair",
                folder.display()
            ),
            Self::Certificate(error) => write!(f, "a local certificate cannot be made: {error}"),
            Self::Helper(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for LocalCaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            Self::Certificate(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn makes_the_root_once_and_keeps_its_keys_private() {
        let home = tempfile::tempdir().unwrap();
        let ca = LocalCa::in_folder(home.path().join("apus/ca"));
        let first = ca.certificate(&["dev.example".to_owned()]).unwrap();
        assert!(first.is_new && first.is_new_root);
        let root = fs::read(&first.root_file).unwrap();
        assert_eq!(mode(&ca.folder), 0o700);
        assert_eq!(mode(&ca.folder.join("root.key")), 0o600);
        assert_eq!(mode(&first.pem_file), 0o600);

        let second = ca.certificate(&["dev.example".to_owned()]).unwrap();
        assert!(!second.is_new && !second.is_new_root);
        let other = ca.certificate(&["other.example".to_owned()]).unwrap();
        assert!(other.is_new && other.pem_file != first.pem_file);
        assert_eq!(fs::read(&first.root_file).unwrap(), root);
    }

    #[test]
    fn names_what_leads_to_this_machine() {
        let names = names(&["[::]".to_owned()]);
        assert!(
            ["localhost", "127.0.0.1", "::1"]
                .iter()
                .all(|name| names.iter().any(|n| n == name))
        );
        assert!(!names.iter().any(|name| name == "::"));
        assert!(super::names(&["Dev.Example".to_owned()]).contains(&"dev.example".to_owned()));
    }

    #[test]
    fn renews_a_certificate_before_it_expires() {
        let home = tempfile::tempdir().unwrap();
        let ca = LocalCa::in_folder(home.path());
        let now = OffsetDateTime::now_utc();
        let first = ca.certificate_at(&[], now).unwrap();
        let before = fs::read(&first.pem_file).unwrap();
        assert!(
            !ca.certificate_at(&[], now + Duration::days(50))
                .unwrap()
                .is_new
        );
        let renewed = ca.certificate_at(&[], now + Duration::days(61)).unwrap();
        assert!(renewed.is_new && !renewed.is_new_root);
        assert_ne!(fs::read(&renewed.pem_file).unwrap(), before);
    }

    #[test]
    fn many_at_once_make_one_root() {
        let home = tempfile::tempdir().unwrap();
        let ca = LocalCa::in_folder(home.path());
        let new_roots: usize = std::thread::scope(|scope| {
            let made: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| ca.certificate(&[]).unwrap().is_new_root))
                .collect();
            made.into_iter()
                .map(|made| usize::from(made.join().unwrap()))
                .sum()
        });
        assert_eq!(new_roots, 1);
    }

    #[test]
    fn never_overwrites_what_it_does_not_know() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("root.pem"), "mine").unwrap();
        let ca = LocalCa::in_folder(home.path());
        assert!(matches!(
            ca.certificate(&[]),
            Err(LocalCaError::KeyMissing(_))
        ));
        fs::write(home.path().join("root.key"), "mine").unwrap();
        assert!(matches!(ca.certificate(&[]), Err(LocalCaError::Foreign(_))));
        assert_eq!(fs::read(home.path().join("root.pem")).unwrap(), b"mine");
    }
}
