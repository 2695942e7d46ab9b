//! Files with networks that are banned, which are read again when they change.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use apus_access::NetworkList;
use apus_http::Network;
use serde_json::{Value, json};
use tracing::{error, info, warn};

/// The largest file: several million networks.
const MAX_BYTES: u64 = 128 << 20;

/// The files of a configuration.
#[derive(Debug, Default)]
pub(crate) struct BanLists(Vec<BanList>);

#[derive(Debug)]
struct BanList {
    path: PathBuf,
    networks: Vec<Network>,
    /// What the file was when it was read last.
    read: Option<FileStamp>,
    /// What it was at the last look. It is read once it has stayed the same for the time between two looks: a file that is being written
    /// has a part of a line at its end.
    seen: Option<FileStamp>,
    /// Why it is not used as it is.
    fault: Option<String>,
}

/// What tells a file from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl BanLists {
    /// Reads the files of a new configuration. Those that it had before keep their networks, if they have mistakes now. Returns whether
    /// the networks may differ.
    pub(crate) fn configure(&mut self, files: &[PathBuf]) -> bool {
        let before = std::mem::take(&mut self.0);
        let had = before.len();
        let mut known: Vec<Option<BanList>> = before.into_iter().map(Some).collect();
        let mut has_changed = had != files.len();
        for path in files {
            let same =
                |list: &&mut Option<BanList>| list.as_ref().is_some_and(|list| list.path == *path);
            let list = known.iter_mut().find(same).and_then(Option::take);
            let mut list = list.unwrap_or_else(|| BanList::new(path));
            has_changed |= list.read_if_changed(true);
            self.0.push(list);
        }
        has_changed || known.iter().any(Option::is_some)
    }

    /// Reads the files that have changed. Returns whether networks differ.
    pub(crate) fn refresh(&mut self) -> bool {
        let lists = self.0.iter_mut();
        lists.fold(false, |changed, list| list.read_if_changed(false) | changed)
    }

    /// The networks of all files.
    pub(crate) fn networks(&self) -> impl Iterator<Item = Network> + '_ {
        self.0.iter().flat_map(|list| list.networks.iter().copied())
    }

    /// How many networks the files have.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|list| list.networks.len()).sum()
    }

    /// Whether there are no files.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn to_json(&self) -> Value {
        let lists = self.0.iter().map(|list| {
            json!({
                "file": list.path.to_string_lossy(),
                "networks": list.networks.len(),
                "fault": list.fault,
            })
        });
        lists.collect()
    }
}

impl BanList {
    fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            networks: Vec::new(),
            read: None,
            seen: None,
            fault: None,
        }
    }

    /// Reads the file, if it differs from what was read before, and is complete or `at_once`.
    fn read_if_changed(&mut self, at_once: bool) -> bool {
        let stamp = match fs::metadata(&self.path) {
            Ok(found) => FileStamp::of(&found),
            Err(error) => {
                self.seen = None;
                self.fail(format!("cannot be read: {error}"));
                return false;
            }
        };
        let is_settled = at_once || self.seen == Some(stamp);
        self.seen = Some(stamp);
        if self.read == Some(stamp) || !is_settled {
            return false;
        }
        let list = match read(&self.path) {
            Ok(text) => NetworkList::parse(&text),
            Err(error) => {
                self.fail(format!("cannot be read: {error}"));
                return false;
            }
        };
        let is_first = self.read.is_none();
        self.read = Some(stamp);
        let (path, count) = (self.path.display(), list.networks.len());
        if let Some(first) = list.mistakes.first() {
            let lines = list.invalid_lines;
            let fault = format!("{first}; {lines} of its lines are not valid");
            if is_first {
                // Half of a list protects more than none.
                warn!(%path, networks = count, "a list of banned networks has mistakes, and its other lines are used: {fault}");
                self.fault = Some(fault);
                self.networks = list.networks;
                return true;
            }
            self.fail(format!("has mistakes: {fault}"));
            return false;
        }
        info!(%path, networks = count, "read a list of banned networks");
        self.fault = None;
        self.networks = list.networks;
        true
    }

    /// Says once why a file is not used.
    fn fail(&mut self, fault: String) {
        if self.fault.as_ref() != Some(&fault) {
            let (path, kept) = (self.path.display(), self.networks.len());
            error!(%path, "a list of banned networks {fault}; the {kept} networks that were read before stay banned");
            self.fault = Some(fault);
        }
    }
}

impl FileStamp {
    fn of(found: &fs::Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        let megabytes = MAX_BYTES >> 20;
        return Err(io::Error::other(format!("it has more than {megabytes} MB")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(lists: &BanLists) -> usize {
        lists.networks().count()
    }

    #[test]
    fn a_file_is_read_again_once_it_has_settled_and_one_with_mistakes_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        let mut lists = BanLists::default();
        // A file that comes later is used then.
        lists.configure(std::slice::from_ref(&path));
        assert_eq!(count(&lists), 0);
        fs::write(&path, "192.0.2.1\n192.0.2.2\n").unwrap();
        assert!(!lists.refresh() && lists.refresh());
        assert_eq!(count(&lists), 2);
        assert!(!lists.refresh());
        fs::write(&path, "192.0.2.1\nnonsense\n192.0.2.3\n192.0.2.4\n").unwrap();
        lists.refresh();
        assert!(!lists.refresh());
        assert_eq!(count(&lists), 2);
        let fault = lists.to_json()[0]["fault"].as_str().unwrap().to_owned();
        assert!(fault.contains("line 2: `nonsense`"), "{fault}");
        fs::remove_file(&path).unwrap();
        assert!(!lists.refresh());
        assert_eq!(count(&lists), 2);
        fs::write(&path, "192.0.2.1\n").unwrap();
        lists.refresh();
        assert!(lists.refresh());
        assert_eq!(
            (count(&lists), &lists.to_json()[0]["fault"]),
            (1, &Value::Null)
        );
    }

    #[test]
    fn a_new_configuration_reads_new_files_at_once_and_drops_others() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| folder.path().join(name));
        fs::write(&files[0], "192.0.2.1\nx\n").unwrap();
        fs::write(&files[1], "192.0.2.2\n192.0.2.3\n").unwrap();
        let mut lists = BanLists::default();
        // Without an older list, the valid lines are used.
        assert!(lists.configure(&files));
        assert_eq!(count(&lists), 3);
        assert!(!lists.configure(&files));
        assert!(lists.configure(&files[1..]));
        assert_eq!(count(&lists), 2);
        assert!(lists.configure(&[]) && lists.is_empty());
    }
}
