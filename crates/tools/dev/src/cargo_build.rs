//! A build by Cargo, and its result.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::net::unix::pipe;

use crate::child::DependentChild;
use crate::diagnostics::{BuildFailure, CompileError, CompilerMessage, without_escapes};
use crate::options::PackageSelection;
use crate::project::CargoProject;
use crate::terminal::DevTerminal;

/// The lines of Cargo that are kept, for a build that fails without an error of the compiler.
const KEPT_LINES: usize = 100;

/// A program that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BuiltProgram {
    pub(crate) path: PathBuf,
    /// The files of this machine that it was built from, without files of registries.
    pub(crate) sources: Vec<PathBuf>,
}

/// Builds the program. The build is killed when the future is dropped.
pub(crate) async fn build(
    project: &CargoProject,
    selection: &PackageSelection,
    terminal: DevTerminal,
) -> Result<BuiltProgram, BuildFailure> {
    let mut command = Command::new("cargo");
    command
        .args(["build", "--message-format=json-diagnostic-rendered-ansi"])
        .args(["--bin", &project.binary, "--manifest-path"])
        .arg(&project.manifest)
        .current_dir(&project.workspace)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if terminal.has_colours() {
        command.args(["--color", "always"]);
    }
    if selection.is_release {
        command.arg("--release");
    }
    for features in &selection.features {
        command.args(["--features", features]);
    }
    match run(&mut command, &project.binary, terminal).await {
        Ok(result) => result,
        Err(error) => Err(BuildFailure {
            errors: Vec::new(),
            cargo: format!("cargo cannot be run: {error}"),
        }),
    }
}

async fn run(
    command: &mut Command,
    binary: &str,
    terminal: DevTerminal,
) -> io::Result<Result<BuiltProgram, BuildFailure>> {
    let mut child = DependentChild::start(command)?;
    let output = lines(child.take_stdout().map(Into::into))?;
    let progress = lines(child.take_stderr().map(Into::into))?;
    let (messages, cargo) = tokio::join!(
        read_messages(output, binary, terminal),
        read_progress(progress, terminal)
    );
    let status = child.wait().await?;
    if let (true, Some(path)) = (status.success(), &messages.program) {
        return Ok(Ok(BuiltProgram {
            sources: sources(path),
            path: path.clone(),
        }));
    }
    let mut failure = BuildFailure {
        errors: messages.errors,
        cargo,
    };
    if status.success() {
        failure.cargo += "\ncargo has built no program of this name";
    }
    if failure.errors.is_empty() {
        terminal.write(&failure.cargo);
    }
    Ok(Err(failure))
}

fn lines(pipe: Option<std::os::fd::OwnedFd>) -> io::Result<impl AsyncRead + Unpin> {
    let pipe = pipe.ok_or(io::ErrorKind::BrokenPipe)?;
    pipe::Receiver::from_owned_fd(pipe)
}

/// What Cargo reports on standard output.
#[derive(Default)]
struct BuildMessages {
    errors: Vec<CompileError>,
    program: Option<PathBuf>,
}

/// A line of JSON of Cargo.
#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum CargoMessage {
    CompilerMessage {
        message: CompilerMessage,
    },
    CompilerArtifact {
        target: ArtifactTarget,
        executable: Option<PathBuf>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct ArtifactTarget {
    name: String,
}

async fn read_messages(
    output: impl AsyncRead + Unpin,
    binary: &str,
    terminal: DevTerminal,
) -> BuildMessages {
    let mut messages = BuildMessages::default();
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(CargoMessage::CompilerMessage { message }) => {
                if let Some(rendered) = &message.rendered {
                    if message.level.starts_with("error") {
                        terminal.write(rendered)
                    } else {
                        terminal.progress(rendered)
                    }
                }
                messages.errors.extend(message.into_error());
            }
            Ok(CargoMessage::CompilerArtifact {
                target,
                executable: Some(path),
            }) if target.name == binary => messages.program = Some(path),
            // Programs of a build script may write other lines.
            Ok(CargoMessage::CompilerArtifact { .. } | CargoMessage::Other) | Err(_) => {}
        }
    }
    messages
}

/// Shows what Cargo writes to standard error, and returns its last lines without colours.
async fn read_progress(output: impl AsyncRead + Unpin, terminal: DevTerminal) -> String {
    let mut kept = std::collections::VecDeque::new();
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        terminal.progress(&line);
        if kept.len() == KEPT_LINES {
            kept.pop_front();
        }
        kept.push_back(without_escapes(&line));
    }
    Vec::from(kept).join("\n")
}

/// The sources of a program, from the file that Cargo writes beside it.
fn sources(program: &Path) -> Vec<PathBuf> {
    let rules = fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    let line = rules.lines().next().unwrap_or_default();
    let files = line.split_once(": ").map_or("", |(_, files)| files);
    let mut paths = Vec::new();
    let mut path = String::new();
    for part in files.split(' ') {
        // A space in a path is written with a backslash.
        match part.strip_suffix('\\') {
            Some(part) => path.extend([part, " "]),
            None => {
                path.push_str(part);
                paths.push(PathBuf::from(std::mem::take(&mut path)));
            }
        }
    }
    paths.retain(|path| path.is_absolute());
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_of_a_program_are_those_that_cargo_names() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("shop");
        fs::write(
            program.with_extension("d"),
            "/a/target/debug/shop: /a/src/lib.rs /a/my\\ files/b.html /a/src/main.rs\n",
        )
        .unwrap();
        let expected = ["/a/src/lib.rs", "/a/my files/b.html", "/a/src/main.rs"];
        assert_eq!(sources(&program), expected.map(PathBuf::from));
        assert!(sources(Path::new("/nowhere")).is_empty());
    }
}
