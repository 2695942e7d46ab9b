//! The path of the crate `apus`, which is not published.

use std::fs;
use std::path::{Path, PathBuf};

use crate::CommandError;

/// The crate, where this program was built.
const BUILT_FROM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../web");

/// The crate, and the workspace that it is part of: absolute paths that stand in quotes as they are.
pub(super) struct FrameworkSource {
    package: String,
    workspace: String,
}

impl FrameworkSource {
    /// The crate at a path, which may be that of its workspace; by default, the one that this program was
    /// built with, if it is still there.
    pub(super) fn find(path: Option<&Path>) -> Result<Self, CommandError> {
        let Some(path) = path else {
            return Self::at(Path::new(BUILT_FROM)).unwrap_or_else(|| {
                Err(CommandError::Misused(
                    "the source that this apus was built from does not exist any more; set --path to the \
                     folder of the crate `apus`, which is crates/web of a checkout"
                        .to_owned(),
                ))
            });
        };
        let found = Self::at(path).or_else(|| Self::at(&path.join("crates/web")));
        found.unwrap_or_else(|| {
            Err(CommandError::Misused(format!(
                "the crate `apus` is not in {}; expected crates/web of a checkout",
                path.display()
            )))
        })
    }

    /// `None` if it is not there.
    fn at(path: &Path) -> Option<Result<Self, CommandError>> {
        let manifest = fs::read_to_string(path.join("Cargo.toml")).ok()?;
        manifest
            .lines()
            .any(|line| line.trim() == "name = \"apus\"")
            .then(|| Self::of(&path.canonicalize().unwrap_or_else(|_| path.to_owned())))
    }

    fn of(package: &Path) -> Result<Self, CommandError> {
        let workspace = package.ancestors().nth(2).unwrap_or(package);
        Ok(Self {
            package: text(package)?,
            workspace: text(workspace)?,
        })
    }

    /// The folder of the crate.
    pub(super) fn package(&self) -> &str {
        &self.package
    }

    /// The folder of its workspace.
    pub(super) fn workspace(&self) -> &str {
        &self.workspace
    }
}

/// The path as it can stand in quotes in TOML and in a Dockerfile.
fn text(path: &Path) -> Result<String, CommandError> {
    let is_plain = |c: char| !c.is_control() && !matches!(c, '"' | '\\' | '$' | '@');
    let text = path.to_str().filter(|text| text.chars().all(is_plain));
    text.map(str::to_owned).ok_or_else(|| {
        CommandError::Misused(format!(
            "the path {} cannot be written into a Cargo.toml; move the source of `apus` to another path",
            PathBuf::from(path).display()
        ))
    })
}
