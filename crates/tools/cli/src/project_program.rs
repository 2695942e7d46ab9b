//! The program of the project in the current folder, which responds to its own commands.

use std::process::Command;

use crate::CommandError;
use crate::arguments::ProjectProgram;

/// Runs a group of commands, `db` or `jobs`, by the program of the project in this folder. It prints what it does, and why it
/// fails.
pub(crate) fn run(
    program: &ProjectProgram,
    group: &str,
    arguments: impl Iterator<Item = String>,
) -> Result<(), CommandError> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet"]);
    if let Some(package) = &program.package {
        cargo.arg("--package").arg(package);
    }
    if let Some(bin) = &program.bin {
        cargo.arg("--bin").arg(bin);
    }
    if program.release {
        cargo.arg("--release");
    }
    let status = cargo.args(["--", group]).args(arguments).status();
    let status = status.map_err(|error| {
        CommandError::Failed(format!(
            "cargo cannot be run: {error}; the program of an application takes the same arguments: `my-shop {group} ...`"
        ))
    })?;
    match status.code() {
        Some(0) => Ok(()),
        Some(2) => Err(CommandError::ReportedMisuse),
        _ => Err(CommandError::Reported),
    }
}
