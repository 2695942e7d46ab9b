//! Where a project gets the crate `apus` from: crates.io, a git repository or a folder.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use semver::VersionReq;

use crate::CommandError;

/// The version of this program and of the framework.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The workspace that this program was built from.
const BUILT_FROM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");

/// Where a new project gets the crate `apus` from. The options have the names of options of `cargo add`.
#[derive(Debug, Args)]
pub(crate) struct FrameworkArguments {
    /// The versions of the crate `apus` on crates.io that the project accepts [default: the version of this apus]
    #[arg(long, value_name = "REQ", group = "framework")]
    pub(crate) version_req: Option<VersionReq>,
    /// A git repository with the crate `apus`
    #[arg(long, value_name = "URL", group = "framework", value_hint = ValueHint::Url)]
    pub(crate) git: Option<String>,
    /// The branch of the git repository [default: its default branch]
    #[arg(long, value_name = "BRANCH", requires = "git", group = "reference")]
    pub(crate) branch: Option<String>,
    /// The tag of the git repository
    #[arg(long, value_name = "TAG", requires = "git", group = "reference")]
    pub(crate) tag: Option<String>,
    /// The commit of the git repository
    #[arg(long, value_name = "REV", requires = "git", group = "reference")]
    pub(crate) rev: Option<String>,
    /// A checkout of Apus, or its folder crates/framework/web
    ///
    /// Cargo.toml and the Dockerfile name it by its absolute path.
    #[arg(long, value_name = "PATH", group = "framework", value_hint = ValueHint::DirPath)]
    pub(crate) path: Option<PathBuf>,
}

/// The source of the crate `apus`.
pub(super) enum FrameworkSource {
    /// crates.io, with the versions that the project accepts.
    CratesIo { requirement: String },
    /// A git repository, and the branch, tag or revision as keys of Cargo.toml.
    Git { url: String, reference: String },
    /// A folder, and the folder of its workspace: absolute paths that stand in quotes as they are.
    Folder { package: String, workspace: String },
}

impl FrameworkSource {
    /// What the arguments name; by default, the version of this program.
    pub(super) fn resolve(arguments: &FrameworkArguments) -> Result<Self, CommandError> {
        if let Some(path) = &arguments.path {
            return Self::folder(path);
        }
        if let Some(url) = &arguments.git {
            let keys = [
                ("branch", &arguments.branch),
                ("tag", &arguments.tag),
                ("rev", &arguments.rev),
            ];
            let mut reference = String::new();
            for (key, value) in keys {
                if let Some(value) = value {
                    reference = format!(", {key} = \"{}\"", quotable(value, key)?);
                }
            }
            let url = quotable(url, "git")?.to_owned();
            return Ok(Self::Git { url, reference });
        }
        let requirement = arguments.version_req.as_ref();
        Ok(Self::CratesIo {
            requirement: requirement.map_or_else(|| VERSION.to_owned(), ToString::to_string),
        })
    }

    /// The crate at a path, which may also be the path of its workspace.
    fn folder(path: &Path) -> Result<Self, CommandError> {
        let has_crate = |path: &Path| {
            fs::read_to_string(path.join("Cargo.toml")).is_ok_and(|manifest| {
                manifest
                    .lines()
                    .any(|line| line.trim() == "name = \"apus\"")
            })
        };
        let candidates = [path.to_owned(), path.join("crates/framework/web")];
        let Some(package) = candidates.iter().find(|path| has_crate(path)) else {
            return Err(CommandError::Misused(format!(
                "the crate `apus` is not in {}; expected a checkout of Apus, or its folder crates/framework/web",
                path.display()
            )));
        };
        let package = package.canonicalize().unwrap_or_else(|_| package.clone());
        let workspace = package.ancestors().nth(3).unwrap_or(&package);
        Ok(Self::Folder {
            workspace: plain_path(workspace)?,
            package: plain_path(&package)?,
        })
    }

    /// The keys of the dependency in Cargo.toml.
    pub(super) fn dependency(&self) -> String {
        match self {
            Self::CratesIo { requirement } => format!("version = \"{requirement}\""),
            Self::Git { url, reference } => format!("git = \"{url}\"{reference}"),
            Self::Folder { package, .. } => format!("path = \"{package}\""),
        }
    }

    /// The argument of `docker build` that a folder outside of the project needs, with a space behind it.
    pub(super) fn docker_context(&self) -> String {
        match self {
            Self::Folder { workspace, .. } => {
                format!(
                    "--build-context {} ",
                    shell_word(&format!("apus={workspace}"))
                )
            }
            Self::CratesIo { .. } | Self::Git { .. } => String::new(),
        }
    }

    /// The lines of the Dockerfile that copy this folder.
    pub(super) fn docker_copy(&self) -> String {
        match self {
            Self::Folder { workspace, .. } => {
                include_str!("project/Dockerfile.folder.in").replace("@checkout@", workspace)
            }
            Self::CratesIo { .. } | Self::Git { .. } => String::new(),
        }
    }

    /// What to do if crates.io does not have this version.
    pub(super) fn note(&self) -> String {
        let Self::CratesIo { requirement } = self else {
            return String::new();
        };
        let built_from = Path::new(BUILT_FROM);
        let checkout = if built_from.join("crates/framework/web/Cargo.toml").exists() {
            built_from.canonicalize().ok()
        } else {
            None
        };
        let checkout = checkout.unwrap_or_else(|| PathBuf::from("CHECKOUT"));
        format!(
            "\nUntil crates.io has apus {requirement}, name a checkout or a git repository of Apus: create the project with\n  \
             --path {checkout}   or   --git URL\nor write  path = \"{checkout}/crates/framework/web\"  in place of the version in \
             Cargo.toml.\n",
            checkout = checkout.display()
        )
    }
}

impl fmt::Display for FrameworkSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CratesIo { requirement } => write!(f, "apus {requirement} of crates.io"),
            Self::Git { url, .. } => write!(f, "the crate apus of {url}"),
            Self::Folder { package, .. } => write!(f, "the crate apus in {package}"),
        }
    }
}

/// The value of an option as it can stand in quotes in TOML.
fn quotable<'a>(value: &'a str, option: &str) -> Result<&'a str, CommandError> {
    let is_quotable = |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, '"' | '\\');
    if value.is_empty() || !value.chars().all(is_quotable) {
        return Err(CommandError::Misused(format!(
            "--{option} {value:?} cannot be written into a Cargo.toml"
        )));
    }
    Ok(value)
}

/// A word of a command for a shell, in quotes if it needs them.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "+,-./:=_".contains(c);
    if word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The path as it can stand in quotes in TOML and in a Dockerfile.
fn plain_path(path: &Path) -> Result<String, CommandError> {
    let is_plain = |c: char| !c.is_control() && !matches!(c, '"' | '\\' | '$' | '@');
    let text = path.to_str().filter(|text| text.chars().all(is_plain));
    text.map(str::to_owned).ok_or_else(|| {
        CommandError::Misused(format!(
            "the path {} cannot be written into a Cargo.toml; move the source of `apus` to another path",
            path.display()
        ))
    })
}
