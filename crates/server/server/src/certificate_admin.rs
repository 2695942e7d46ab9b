//! `apus cert show`, `revoke`, `forget` and `import`: work on the folder of certificates, and on the storage that machines share,
//! with or without a running server, which notices it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use apus_acme::{
    CertificateDetails, CertificateInventory, CertificateStoreError, ForeignCertificates,
    ImportedCertificate, IssueError, ManagedCertificate, RevocationReason, StoredCertificate,
};
use apus_net::AccountError;
use apus_patterns::canonical_host_name;
use rustix::process::geteuid;
use tokio::runtime::{Builder, LocalRuntime};

use crate::folder_config::FolderConfig;
use crate::load::{Certificates, LoadError, PlanLoader, managed_certificates};
use crate::privileges::{CERTIFICATE_FOLDER_MODE, prepare_folder, server_account};
use crate::source::ConfigSource;

/// The folder of the certificates of a configuration. As root, it is used as the user of the server.
#[derive(Debug)]
pub struct CertificateAdmin {
    inventory: CertificateInventory,
    managed: Vec<ManagedCertificate>,
    runtime: LocalRuntime,
    /// Why the folder is not known to be the same as the storage that machines share.
    sharing_fault: Option<CertificateStoreError>,
}

/// What an import did.
#[derive(Clone, Debug)]
pub struct ImportReport {
    /// For each certificate that the configuration orders.
    pub certificates: Vec<ImportedCertificate>,
    /// Files and names of certificates that no site orders.
    pub unused: Vec<(PathBuf, String)>,
    /// Files that cannot be used, and why.
    pub faults: Vec<String>,
}

impl CertificateAdmin {
    /// Opens the folder of a configuration. Before that, `prepare` reads what only the user of this process can read. There
    /// must be no other thread if the process is root: it gives that up.
    fn open_after<T>(
        source: ConfigSource,
        prepare: impl FnOnce() -> Result<T, CertificateAdminError>,
    ) -> Result<(Self, T), CertificateAdminError> {
        let loader = PlanLoader::new(
            source,
            FolderConfig::new(None, false),
            Certificates::Named,
            None,
        );
        let config = loader.read_as_root().map_err(CertificateAdminError::Load)?;
        let store = loader.certificate_store(&config);
        let managed = managed_certificates(&config).cloned().collect();
        let storage = config.global.acme_storage.as_ref();
        let storage = storage.map(|address| address.open()).transpose();
        let storage = storage.map_err(|error| CertificateAdminError::Store(error.into()))?;
        let prepared = prepare()?;
        if geteuid().is_root()
            && let Some(account) = server_account(&config.global, None)?
        {
            // In its own folder, the user of the server creates it, or reports that it cannot.
            let _ = prepare_folder(store.folder(), CERTIFICATE_FOLDER_MODE, &account);
            account
                .assume()
                .map_err(|error| CertificateAdminError::Io(store.folder().to_owned(), error))?;
        }
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())
            .map_err(|error| CertificateAdminError::Io(store.folder().to_owned(), error))?;
        let inventory = CertificateInventory::new(store, storage);
        let sharing_fault = runtime.block_on(inventory.fetch()).err();
        let admin = Self {
            inventory,
            managed,
            runtime,
            sharing_fault,
        };
        Ok((admin, prepared))
    }

    /// Why the certificates that are shown may not be those that other machines have.
    pub fn sharing_fault(&self) -> Option<String> {
        self.sharing_fault.as_ref().map(ToString::to_string)
    }

    /// The storage that machines share has to be reached for changes.
    fn check_sharing(&mut self) -> Result<(), CertificateAdminError> {
        match self.sharing_fault.take() {
            Some(fault) => Err(fault.into()),
            None => Ok(()),
        }
    }

    /// Opens the folder of a configuration. There must be no other thread if the process is root: it gives that up.
    ///
    /// # Errors
    /// The configuration has errors, or the process cannot become the user of the server.
    pub fn open(source: ConfigSource) -> Result<Self, CertificateAdminError> {
        Self::open_after(source, || Ok(())).map(|(admin, ())| admin)
    }

    /// What there is to know of the certificates that have this name, or of all.
    ///
    /// # Errors
    /// The folder cannot be read, or none has the name.
    pub fn show(
        &self,
        name: Option<&str>,
    ) -> Result<Vec<CertificateDetails>, CertificateAdminError> {
        let found = match name {
            Some(name) => self.find(name)?,
            None => self.inventory.store().stored()?,
        };
        Ok(found.iter().map(StoredCertificate::details).collect())
    }

    /// Revokes the certificates that have this name. Returns them.
    ///
    /// # Errors
    /// The folder cannot be read, none has the name, or an authority refuses.
    pub fn revoke(
        &mut self,
        name: &str,
        reason: RevocationReason,
    ) -> Result<Vec<CertificateDetails>, CertificateAdminError> {
        self.check_sharing()?;
        let found = self.find(name)?;
        for one in &found {
            let managed = self.managed.iter().find(|managed| one.is_of(managed));
            // A certificate that no site has any more is of the same authority as others, or of a public one.
            let settings = managed
                .or_else(|| self.managed.first())
                .map(|managed| &managed.settings);
            let root = settings.and_then(|settings| settings.provider_root.as_deref());
            let revocation = self.inventory.revoke(one, reason, root);
            self.runtime.block_on(revocation)?;
        }
        Ok(self
            .find(name)?
            .iter()
            .map(StoredCertificate::details)
            .collect())
    }

    /// Removes the certificates that have this name, with their private keys. Returns what they were.
    ///
    /// # Errors
    /// The folder cannot be changed, none has the name, or the configuration orders it.
    pub fn forget(&mut self, name: &str) -> Result<Vec<CertificateDetails>, CertificateAdminError> {
        self.check_sharing()?;
        let found = self.find(name)?;
        let is_ordered = |one: &&StoredCertificate| self.managed.iter().any(|it| one.is_of(it));
        if let Some(one) = found.iter().find(is_ordered) {
            return Err(CertificateAdminError::InUse(one.names().join(" ")));
        }
        let details = found.iter().map(StoredCertificate::details).collect();
        for one in found {
            self.runtime.block_on(self.inventory.forget(one))?;
        }
        Ok(details)
    }

    fn find(&self, name: &str) -> Result<Vec<StoredCertificate>, CertificateAdminError> {
        let name = canonical_host_name(name).map_or_else(|| name.to_owned(), Into::into);
        let store = self.inventory.store();
        let mut found = store.stored()?;
        found.retain(|one| one.names().iter().any(|has| **has == *name));
        if found.is_empty() {
            Err(CertificateAdminError::Unknown(
                name,
                store.folder().to_owned(),
            ))
        } else {
            Ok(found)
        }
    }
}

/// Stores the certificates that certbot, acme.sh or Caddy have in `folder`, if the configuration would order them. There
/// must be no other thread if the process is root: it gives that up.
///
/// # Errors
/// The configuration has errors or orders none, or a folder cannot be read or written.
pub fn import_certificates(
    source: ConfigSource,
    folder: &Path,
) -> Result<ImportReport, CertificateAdminError> {
    let read = || Ok(ForeignCertificates::read(folder)?);
    let (mut admin, foreign) = CertificateAdmin::open_after(source, read)?;
    admin.check_sharing()?;
    if admin.managed.is_empty() {
        return Err(CertificateAdminError::NothingOrdered);
    }
    let import = admin.inventory.import(&foreign, &admin.managed);
    let certificates = admin.runtime.block_on(import)?;
    let unused = foreign.unused(&admin.managed);
    Ok(ImportReport {
        certificates,
        unused: unused
            .map(|(path, names)| (path.to_owned(), names))
            .collect(),
        faults: foreign.faults.clone(),
    })
}

/// Why a command for certificates fails.
#[derive(Debug)]
#[non_exhaustive]
pub enum CertificateAdminError {
    /// The configuration cannot be loaded.
    Load(LoadError),
    /// The user of the server does not exist.
    Account(AccountError),
    /// A folder cannot be prepared.
    Io(PathBuf, io::Error),
    /// A folder cannot be read or written.
    Store(CertificateStoreError),
    /// The authority refuses, or a file cannot be written.
    Issue(IssueError),
    /// No certificate in this folder has this name.
    Unknown(String, PathBuf),
    /// The configuration orders the certificate for these names.
    InUse(String),
    /// The configuration orders no certificate.
    NothingOrdered,
}

impl From<AccountError> for CertificateAdminError {
    fn from(error: AccountError) -> Self {
        Self::Account(error)
    }
}

impl From<CertificateStoreError> for CertificateAdminError {
    fn from(error: CertificateStoreError) -> Self {
        Self::Store(error)
    }
}

impl From<IssueError> for CertificateAdminError {
    fn from(error: IssueError) -> Self {
        Self::Issue(error)
    }
}

impl fmt::Display for CertificateAdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Account(error) => error.fmt(f),
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Store(error) => error.fmt(f),
            Self::Issue(error) => error.fmt(f),
            Self::Unknown(name, folder) => {
                write!(f, "no certificate in {} is for `{name}`", folder.display())
            }
            Self::InUse(names) => write!(
                f,
                "the configuration orders the certificate for {names}, and would order it again: remove its site first; \
                 `apus cert renew` replaces the certificate"
            ),
            Self::NothingOrdered => {
                f.write_str("no site of the configuration orders a certificate by ACME")
            }
        }
    }
}

impl std::error::Error for CertificateAdminError {}
