//! `apus new`: creates the folder of a new project.

mod name;
mod source;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::CommandError;

pub(crate) use name::ProjectName;
pub(crate) use source::FrameworkArguments;
use source::FrameworkSource;

/// The files of a project, by their paths in it. In both, `@name@` stands for its name; `@apus@` are the keys of the
/// dependency on the framework.
const FILES: [(&str, &str); 12] = [
    ("Cargo.toml", include_str!("project/Cargo.toml.in")),
    ("src/main.rs", include_str!("project/src/main.rs.in")),
    ("src/lib.rs", include_str!("project/src/lib.rs.in")),
    (
        "templates/base.html",
        include_str!("project/templates/base.html.in"),
    ),
    (
        "templates/home.html",
        include_str!("project/templates/home.html.in"),
    ),
    (
        "templates/hello.html",
        include_str!("project/templates/hello.html.in"),
    ),
    ("tests/app.rs", include_str!("project/tests/app.rs.in")),
    ("Dockerfile", include_str!("project/Dockerfile.in")),
    (".dockerignore", include_str!("project/dockerignore.in")),
    ("@name@.service", include_str!("project/service.in")),
    (".gitignore", include_str!("project/gitignore.in")),
    ("README.md", include_str!("project/README.md.in")),
];

/// Creates a project of this name in the current folder, with the crate `apus` of this source. After an error,
/// nothing is left behind. Returns the text to print.
pub(crate) fn create(
    name: &ProjectName,
    source: &FrameworkArguments,
) -> Result<String, CommandError> {
    let source = FrameworkSource::resolve(source)?;
    let folder = PathBuf::from(name.as_str());
    fs::create_dir(&folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            CommandError::Failed(format!("the folder {} exists already", folder.display()))
        }
        _ => failed(&folder, &error),
    })?;
    if let Err(refused) = write(&folder, name, &source) {
        // The first error is reported; this one has the same cause.
        let _ = fs::remove_dir_all(&folder);
        return Err(refused);
    }
    Ok(format!(
        "created the project {name} with {source}\n\n  cd {name}\n  cargo run     # http://127.0.0.1:8080/\n  cargo test\n{note}",
        note = source.note(),
    ))
}

fn write(folder: &Path, name: &ProjectName, source: &FrameworkSource) -> Result<(), CommandError> {
    let fill = |text: &str| {
        text.replace("@name@", name.as_str())
            .replace("@crate@", &name.as_crate())
            .replace("@docker-context@", &source.docker_context())
            .replace("@docker-copy@", &source.docker_copy())
            // The last one: a URL may have an `@`.
            .replace("@apus@", &source.dependency())
    };
    for (path, text) in FILES {
        let path = folder.join(fill(path));
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, fill(text)))
            .map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

fn failed(path: &Path, error: &io::Error) -> CommandError {
    CommandError::Failed(format!("cannot create {}: {error}", path.display()))
}
