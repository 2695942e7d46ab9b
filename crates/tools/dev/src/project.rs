//! The Cargo project that is developed: its package, and the program that is run.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::options::PackageSelection;

/// The package of the framework, on which the project depends.
const FRAMEWORK: &str = "apus";

/// A package with the program that is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CargoProject {
    /// The name of the package.
    pub(crate) package: String,
    /// The name of the program.
    pub(crate) binary: String,
    /// The manifest of the package.
    pub(crate) manifest: PathBuf,
    /// The folder of the workspace.
    pub(crate) workspace: PathBuf,
    /// The folder with what Cargo builds.
    pub(crate) target: PathBuf,
}

impl CargoProject {
    /// Finds the project of a folder.
    pub(crate) fn find(folder: &Path, selection: &PackageSelection) -> Result<Self, ProjectError> {
        let has_manifest = |folder: &&Path| folder.join("Cargo.toml").is_file();
        let Some(nearest) = folder.ancestors().find(has_manifest) else {
            return Err(ProjectError::NoManifest(folder.to_owned()));
        };
        let output = Command::new("cargo")
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => ProjectError::NoCargo,
                _ => ProjectError::Cargo(error.to_string()),
            })?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(ProjectError::Cargo(message));
        }
        let metadata = serde_json::from_slice(&output.stdout)
            .map_err(|error| ProjectError::Cargo(format!("its metadata are invalid: {error}")))?;
        Self::select(&metadata, &nearest.join("Cargo.toml"), selection)
    }

    fn select(
        metadata: &CargoMetadata,
        nearest: &Path,
        selection: &PackageSelection,
    ) -> Result<Self, ProjectError> {
        let packages = &metadata.packages;
        let nearest = nearest
            .canonicalize()
            .unwrap_or_else(|_| nearest.to_owned());
        let is_nearest = |package: &&CargoPackage| {
            let manifest = package.manifest_path.canonicalize();
            manifest.is_ok_and(|manifest| manifest == nearest)
        };
        let package = match &selection.package {
            Some(name) => packages
                .iter()
                .find(|package| package.name == *name)
                .ok_or_else(|| ProjectError::NoSuchPackage {
                    name: name.clone(),
                    packages: names(packages.iter().map(|package| &package.name)),
                })?,
            None => match packages.iter().find(is_nearest) {
                Some(package) => package,
                // The manifest belongs to a workspace.
                None => {
                    let mut applications = packages.iter().filter(|package| {
                        package.uses_framework() && package.binaries().next().is_some()
                    });
                    match (applications.next(), applications.next()) {
                        (Some(only), None) => only,
                        (None, _) => return Err(ProjectError::NoApplication),
                        (Some(first), Some(second)) => {
                            let all = [first, second].into_iter().chain(applications);
                            return Err(ProjectError::SeveralPackages(names(
                                all.map(|package| &package.name),
                            )));
                        }
                    }
                }
            },
        };
        if !package.uses_framework() {
            return Err(ProjectError::NoFramework(package.name.clone()));
        }
        Ok(Self {
            binary: package.binary(selection.binary.as_deref())?,
            package: package.name.clone(),
            manifest: package.manifest_path.clone(),
            workspace: metadata.workspace_root.clone(),
            target: metadata.target_directory.clone(),
        })
    }

    /// The folder of the package.
    pub(crate) fn folder(&self) -> &Path {
        self.manifest.parent().unwrap_or(&self.workspace)
    }
}

/// The part of the output of `cargo metadata` that is used.
#[derive(Debug, Deserialize)]
struct CargoMetadata {
    packages: Vec<CargoPackage>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

#[derive(Debug, Deserialize)]
struct CargoPackage {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<CargoDependency>,
    targets: Vec<CargoTarget>,
    #[serde(default)]
    default_run: Option<String>,
}

#[derive(Debug, Deserialize)]
struct CargoDependency {
    name: String,
}

#[derive(Debug, Deserialize)]
struct CargoTarget {
    name: String,
    kind: Vec<String>,
}

impl CargoPackage {
    fn uses_framework(&self) -> bool {
        let mut dependencies = self.dependencies.iter();
        dependencies.any(|dependency| dependency.name == FRAMEWORK)
    }

    fn binaries(&self) -> impl Iterator<Item = &String> {
        let targets = self.targets.iter();
        let binaries = targets.filter(|target| target.kind.iter().any(|kind| kind == "bin"));
        binaries.map(|target| &target.name)
    }

    /// The program with this name; by default the one that `cargo run` runs.
    fn binary(&self, name: Option<&str>) -> Result<String, ProjectError> {
        if let Some(name) = name.or(self.default_run.as_deref()) {
            let found = self.binaries().find(|binary| *binary == name);
            return found.cloned().ok_or_else(|| ProjectError::NoSuchBinary {
                package: self.name.clone(),
                name: name.to_owned(),
                binaries: names(self.binaries()),
            });
        }
        let mut binaries = self.binaries();
        match (binaries.next(), binaries.next()) {
            (Some(only), None) => Ok(only.clone()),
            (None, _) => Err(ProjectError::NoBinary(self.name.clone())),
            (Some(_), Some(_)) => Err(ProjectError::SeveralBinaries {
                package: self.name.clone(),
                binaries: names(self.binaries()),
            }),
        }
    }
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.cloned().collect::<Vec<_>>().join(", ")
}

/// Why a folder has no application that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProjectError {
    /// Neither the folder nor its parents have a `Cargo.toml`.
    NoManifest(PathBuf),
    /// Cargo is not installed.
    NoCargo,
    /// Cargo rejects the project, for this reason.
    Cargo(String),
    /// The package does not depend on the framework.
    NoFramework(String),
    /// No package of the workspace is an application.
    NoApplication,
    /// The workspace has several applications.
    SeveralPackages(String),
    /// The workspace has no package of this name.
    NoSuchPackage {
        /// The name.
        name: String,
        /// The packages that it has.
        packages: String,
    },
    /// The package is a library.
    NoBinary(String),
    /// The package has several programs.
    SeveralBinaries {
        /// The package.
        package: String,
        /// Its programs.
        binaries: String,
    },
    /// The package has no program of this name.
    NoSuchBinary {
        /// The package.
        package: String,
        /// The name.
        name: String,
        /// The programs that it has.
        binaries: String,
    },
}

impl fmt::Display for ProjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoManifest(folder) => write!(
                f,
                "{} is not in a Cargo project: neither it nor its parents have a Cargo.toml; run `apus dev` in the folder of \
                 an application, or create one with `apus new NAME`",
                folder.display()
            ),
            Self::NoCargo => f.write_str("cargo is not installed; see https://rustup.rs"),
            Self::Cargo(message) => write!(f, "cargo cannot read the project: {message}"),
            Self::NoFramework(package) => write!(
                f,
                "the package {package} does not depend on the crate `apus`; `apus dev` runs applications of the framework"
            ),
            Self::NoApplication => f.write_str(
                "no package of the workspace is a program that depends on the crate `apus`",
            ),
            Self::SeveralPackages(packages) => write!(
                f,
                "the workspace has several applications: {packages}; select one with --package"
            ),
            Self::NoSuchPackage { name, packages } => {
                write!(f, "the workspace has no package {name}; it has: {packages}")
            }
            Self::NoBinary(package) => {
                write!(
                    f,
                    "the package {package} is a library: it has no program to run"
                )
            }
            Self::SeveralBinaries { package, binaries } => write!(
                f,
                "the package {package} has several programs: {binaries}; select one with --bin, or set `default-run` in \
                 Cargo.toml"
            ),
            Self::NoSuchBinary {
                package,
                name,
                binaries,
            } => write!(
                f,
                "the package {package} has no program {name}; it has: {binaries}"
            ),
        }
    }
}

impl std::error::Error for ProjectError {}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn package(name: &str, dependencies: &[&str], binaries: &[&str]) -> Value {
        json!({
            "name": name,
            "manifest_path": format!("/projects/{name}/Cargo.toml"),
            "dependencies": dependencies.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
            "targets": binaries.iter().map(|name| json!({"name": name, "kind": ["bin"]})).collect::<Vec<_>>(),
        })
    }

    fn select(packages: &[Value], selection: &PackageSelection) -> Result<CargoProject, String> {
        let metadata = json!({
            "packages": packages, "workspace_root": "/projects", "target_directory": "/projects/target",
        });
        let metadata = serde_json::from_value(metadata).unwrap();
        CargoProject::select(&metadata, Path::new("/projects/Cargo.toml"), selection)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_only_application_of_a_workspace_is_selected() {
        let library = package("tools", &["serde"], &["tool"]);
        let shop = package("shop", &["apus"], &["shop"]);
        let found = select(
            &[library.clone(), shop.clone()],
            &PackageSelection::default(),
        )
        .unwrap();
        assert_eq!(
            (found.package.as_str(), found.binary.as_str()),
            ("shop", "shop")
        );
        assert_eq!(found.folder(), Path::new("/projects/shop"));

        let blog = package("blog", &["apus"], &["blog"]);
        let packages = [library, shop, blog];
        let error = select(&packages, &PackageSelection::default()).unwrap_err();
        assert!(
            error.contains("shop, blog; select one with --package"),
            "{error}"
        );
        let select_package = |name: &str| {
            let selection = PackageSelection {
                package: Some(name.to_owned()),
                ..PackageSelection::default()
            };
            select(&packages, &selection)
        };
        assert_eq!(select_package("blog").unwrap().binary, "blog");
        assert!(
            select_package("tools")
                .unwrap_err()
                .contains("does not depend on")
        );
        assert!(
            select_package("none")
                .unwrap_err()
                .contains("tools, shop, blog")
        );
    }

    #[test]
    fn one_of_several_programs_has_to_be_selected() {
        let mut shop = package("shop", &["apus"], &["shop", "import"]);
        let selection = |binary: Option<&str>| PackageSelection {
            binary: binary.map(str::to_owned),
            ..PackageSelection::default()
        };
        let error = select(&[shop.clone()], &selection(None)).unwrap_err();
        assert!(
            error.contains("shop, import; select one with --bin"),
            "{error}"
        );
        let found = select(&[shop.clone()], &selection(Some("import"))).unwrap();
        assert_eq!(found.binary, "import");
        let error = select(&[shop.clone()], &selection(Some("none"))).unwrap_err();
        assert!(error.contains("it has: shop, import"), "{error}");
        shop["default_run"] = "shop".into();
        assert_eq!(select(&[shop], &selection(None)).unwrap().binary, "shop");
        let library = package("shop", &["apus"], &[]);
        let selection = PackageSelection {
            package: Some("shop".to_owned()),
            ..PackageSelection::default()
        };
        assert!(
            select(&[library], &selection)
                .unwrap_err()
                .contains("is a library")
        );
    }
}
