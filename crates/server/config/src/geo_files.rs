//! The files of databases of places, which stay in memory as long as a configuration uses them.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use apus_conditions::GeoDatabase;
use apus_net::read_trusted_file;
use serde::{Deserialize, Serialize};

/// The largest database. The largest that are sold have less than half of it.
const MAX_DATABASE: u64 = 1 << 30;

/// A file that was changed within this time may still be written.
const SETTLED: Duration = Duration::from_secs(2);

/// What tells a file from the one before. The bytes of a database are too many to be compared, or sent to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DatabaseStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl DatabaseStamp {
    /// That of a file, unless it is missing.
    pub(super) fn of(path: &Path) -> Option<Self> {
        Some(Self::from_metadata(&fs::metadata(path).ok()?))
    }

    /// That of a file, unless it is missing or may still be written.
    pub(super) fn of_settled(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        let age = SystemTime::now().duration_since(found.modified().ok()?);
        // A time in the future says nothing.
        (age.is_err() || age.is_ok_and(|age| age >= SETTLED)).then(|| Self::from_metadata(&found))
    }

    fn from_metadata(found: &fs::Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
        }
    }
}

/// The databases that configurations of this process use, each with what its file was when it was read.
static IN_USE: Mutex<BTreeMap<PathBuf, (DatabaseStamp, Weak<GeoDatabase>)>> =
    Mutex::new(BTreeMap::new());

/// The database in a file. It is read once for all configurations, until it changes.
pub(super) fn geo_database(path: &Path) -> io::Result<Arc<GeoDatabase>> {
    let stamp = DatabaseStamp::of(path);
    let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    in_use.retain(|_, (_, database)| database.strong_count() > 0);
    let known = in_use.get(path).filter(|(known, _)| Some(*known) == stamp);
    if let Some(database) = known.and_then(|(_, database)| database.upgrade()) {
        return Ok(database);
    }
    let bytes = read_trusted_file(path, MAX_DATABASE)?;
    let database = Arc::new(GeoDatabase::parse(bytes).map_err(io::Error::other)?);
    if let Some(stamp) = stamp {
        in_use.insert(path.to_owned(), (stamp, Arc::downgrade(&database)));
    }
    Ok(database)
}
