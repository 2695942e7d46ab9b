//! `apus new`: creates the folder of a new project.

mod name;
mod parts;
mod source;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::CommandError;

pub(crate) use name::ProjectName;
pub(crate) use parts::ProjectPart;
use parts::ProjectParts;
pub(crate) use source::FrameworkArguments;
use source::FrameworkSource;

/// Creates a project of this name in the current folder, with the crate `apus` of this source. After an error,
/// nothing is left behind. Returns the text to print.
pub(crate) fn create(
    name: &ProjectName,
    parts: &[ProjectPart],
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
    if let Err(refused) = write(&folder, name, &ProjectParts::of(parts), &source) {
        // The first error is reported; this one has the same cause.
        let _ = fs::remove_dir_all(&folder);
        return Err(refused);
    }
    Ok(format!(
        "created the project {name} with {source}\n\n  cd {name}\n  cargo run     # http://127.0.0.1:8080/\n  cargo test\n{note}",
        note = source.note(),
    ))
}

/// Writes the files. In their paths and texts, `@name@` stands for the name of the project; `@apus@` are the keys of the
/// dependency on the framework.
fn write(
    folder: &Path,
    name: &ProjectName,
    parts: &ProjectParts,
    source: &FrameworkSource,
) -> Result<(), CommandError> {
    let fill = |text: &str| {
        text.replace("@name@", name.as_str())
            .replace("@features@", &parts.features())
            .replace("@crate@", &name.as_crate())
            .replace("@docker-context@", &source.docker_context())
            .replace("@docker-options@", &parts.docker_options(name))
            .replace("@docker-copy@", &source.docker_copy())
            // The last one: a URL may have an `@`.
            .replace("@apus@", &source.dependency())
    };
    for (path, text) in parts.files() {
        let path = folder.join(fill(path));
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, fill(&parts.select(text))))
            .map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

fn failed(path: &Path, error: &io::Error) -> CommandError {
    CommandError::Failed(format!("cannot create {}: {error}", path.display()))
}
