//! Migrations: where their files are, and how they run on a database.

mod files;
mod lock;
mod run;

use std::path::{Path, PathBuf};

use crate::driver::System;
use files::{InvalidMigrations, MigrationFiles};
pub use run::{MigrationState, MigrationStatus};

/// The files of migrations, which are read from a folder by its path, or which [`migrations!`](crate::migrations!) embeds
/// in the program.
///
/// A file is named by its number, as `0001_users.sql` or `0001_users.up.sql`, and the one that undoes it, if there is one,
/// `0001_users.down.sql`. If the folder has a folder `sqlite`, `postgres` or `mysql` for the system of a database, the files
/// are in there.
#[derive(Clone, Debug)]
pub struct Migrations(MigrationSource);

#[derive(Clone, Debug)]
enum MigrationSource {
    Folder(PathBuf),
    Embedded {
        folder: &'static str,
        files: &'static [(&'static str, &'static [u8])],
        is_development: bool,
    },
}

impl Migrations {
    /// What [`migrations!`](crate::migrations!) embedded.
    #[doc(hidden)]
    pub const fn embedded(
        folder: &'static str,
        files: &'static [(&'static str, &'static [u8])],
        is_development: bool,
    ) -> Self {
        Self(MigrationSource::Embedded {
            folder,
            files,
            is_development,
        })
    }

    /// The files for a system.
    ///
    /// # Errors
    /// A file would never be run, or cannot be read.
    fn files(&self, system: System) -> Result<MigrationFiles, InvalidMigrations> {
        match &self.0 {
            MigrationSource::Folder(folder) => MigrationFiles::read(folder, system),
            MigrationSource::Embedded {
                folder,
                is_development: true,
                ..
            } if Path::new(folder).is_dir() => MigrationFiles::read(Path::new(folder), system),
            MigrationSource::Embedded { files, .. } => MigrationFiles::embedded(files, system),
        }
    }

    /// Where they are, for errors.
    fn place(&self) -> String {
        match &self.0 {
            MigrationSource::Folder(folder) => folder.display().to_string(),
            MigrationSource::Embedded { .. } => "the program".to_owned(),
        }
    }
}

macro_rules! from_paths {
    ($($path:ty),*) => {$(
        impl From<$path> for Migrations {
            fn from(folder: $path) -> Self {
                Self(MigrationSource::Folder(PathBuf::from(folder)))
            }
        }
    )*};
}

from_paths!(&str, String, &String, PathBuf, &Path);

impl From<&PathBuf> for Migrations {
    fn from(folder: &PathBuf) -> Self {
        Self::from(folder.as_path())
    }
}

impl From<&Self> for Migrations {
    fn from(migrations: &Self) -> Self {
        migrations.clone()
    }
}

/// The [`Migrations`] of a folder, which are compiled into the program: `migrations!("migrations")`, where the folder is
/// relative to the folder of `Cargo.toml`; `migrations!()` takes the folder `migrations`.
///
/// A build with debug assertions reads the folder when it runs, as long as the folder exists, so that a new file needs no
/// new build.
#[macro_export]
macro_rules! migrations {
    () => {
        $crate::migrations!("migrations")
    };
    ($folder:literal) => {
        $crate::Migrations::embedded(
            ::core::concat!(::core::env!("CARGO_MANIFEST_DIR"), "/", $folder),
            &$crate::embedded!($folder),
            ::core::cfg!(debug_assertions),
        )
    };
}
