//! `Manifest`: the file names that contain a hash of the file.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::SystemTime;

use apus_tokens::Hexadecimal;
use sha2::{Digest, Sha256};

use apus_http::fields::http_date_text;
use apus_http::path;

/// The files of a folder at the time when it was read.
#[derive(Debug)]
pub(super) struct Manifest {
    folder: PathBuf,
    /// By name.
    files: HashMap<String, Asset>,
    /// Plain names, by hashed names.
    names: HashMap<String, String>,
}

/// A file.
#[derive(Debug)]
struct Asset {
    /// The path of its URL, with its hashed name.
    address: String,
    /// `Last-Modified` of it.
    modified: String,
}

/// The number of hash digits in a name. They only have to distinguish versions of one file.
const DIGITS: usize = 8;

impl Manifest {
    /// Reads all files below a folder.
    ///
    /// # Errors
    /// The folder or a file in it cannot be read.
    pub(super) fn of(folder: PathBuf, prefix: &str) -> io::Result<Self> {
        let mut files = HashMap::new();
        let mut names = HashMap::new();
        let mut folders = vec![(folder.clone(), String::new())];
        while let Some((folder, parent)) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else {
                    continue;
                };
                if name.starts_with('.') {
                    continue;
                }
                let name = format!("{parent}{name}");
                let metadata = fs::metadata(entry.path())?;
                if metadata.is_dir() {
                    folders.push((entry.path(), format!("{name}/")));
                    continue;
                }
                if !metadata.is_file() {
                    continue;
                }
                let mut file = File::open(entry.path())?;
                let modified = file
                    .metadata()?
                    .modified()
                    .unwrap_or(SystemTime::UNIX_EPOCH);
                let hashed = hashed_name(&name, &hash(&mut file)?);
                files.insert(
                    name.clone(),
                    Asset {
                        address: address(prefix, &hashed),
                        modified: http_date_text(modified),
                    },
                );
                names.insert(hashed, name);
            }
        }
        Ok(Self {
            folder,
            files,
            names,
        })
    }

    /// The path of a file, with its hashed name.
    pub(super) fn address(&self, name: &str) -> Option<&str> {
        self.files.get(name).map(|asset| &*asset.address)
    }

    /// Whether a file of this name exists now.
    pub(super) fn is_there(&self, name: &str) -> bool {
        let is_inside = |segment: &str| !segment.is_empty() && !segment.starts_with('.');
        name.split('/').all(is_inside) && self.folder.join(name).is_file()
    }

    /// All names with their paths.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .map(|(name, asset)| (&**name, &*asset.address))
    }

    /// The meaning of a name in a request.
    pub(super) fn find<'a>(&'a self, name: &'a str) -> AssetName<'a> {
        if let Some(plain) = self.names.get(name) {
            return AssetName::Current(plain);
        }
        match without_hash(name) {
            Some(plain) if !self.files.contains_key(name) && self.files.contains_key(&plain) => {
                AssetName::Other(plain)
            }
            _ => AssetName::Plain,
        }
    }

    /// Whether a file with this modification time is the one that was hashed.
    pub(super) fn is_unchanged(&self, name: &str, modified: &str) -> bool {
        self.files
            .get(name)
            .is_some_and(|asset| asset.modified == modified)
    }
}

/// The path of a name, which needs no escapes in HTML.
pub(super) fn address(prefix: &str, name: &str) -> String {
    let encoded = path::encode(name.as_bytes());
    let encoded = encoded.replace('&', "%26").replace('\'', "%27");
    format!("{prefix}/{encoded}")
}

/// The meaning of a name in a request.
pub(super) enum AssetName<'a> {
    /// The hashed name of this file.
    Current(&'a str),
    /// A hashed name of another version of this file.
    Other(String),
    /// A plain name.
    Plain,
}

fn hash(file: &mut File) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
    }
    let digest = hasher.finalize();
    let first = digest.get(..DIGITS / 2).unwrap_or_default();
    Ok(Hexadecimal(first).to_string())
}

/// `css/app.css` as `css/app.3f9a2bd0.css`.
fn hashed_name(name: &str, hash: &str) -> String {
    let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
    let slash = if folder.is_empty() { "" } else { "/" };
    match file.rsplit_once('.') {
        Some((stem, extension)) => format!("{folder}{slash}{stem}.{hash}.{extension}"),
        None => format!("{folder}{slash}{file}.{hash}"),
    }
}

/// `css/app.3f9a2bd0.css` as `css/app.css`.
fn without_hash(name: &str) -> Option<String> {
    let is_hash = |part: &str| {
        part.len() == DIGITS
            && part
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let (before, last) = name.rsplit_once('.')?;
    match before.rsplit_once('.') {
        Some((stem, hash)) if is_hash(hash) && !last.contains('/') => {
            Some(format!("{stem}.{last}"))
        }
        _ => is_hash(last).then(|| before.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_before_the_extension() {
        for (name, hashed) in [
            ("app.css", "app.3f9a2bd0.css"),
            ("js/app.min.js", "js/app.min.3f9a2bd0.js"),
            ("LICENSE", "LICENSE.3f9a2bd0"),
            ("a.b/c", "a.b/c.3f9a2bd0"),
        ] {
            assert_eq!(hashed_name(name, "3f9a2bd0"), hashed);
            assert_eq!(without_hash(hashed).as_deref(), Some(name));
            assert_eq!(without_hash(name), None);
        }
        assert_eq!(without_hash("a.3f9a2bd0/c.css"), None);
    }
}
