//! `CommandGroup`: a group of commands that a program of the framework responds to, as `shop db migrate`.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

/// A group of commands, which a program responds to if its first argument is the name of the group.
#[derive(Clone, Copy, Debug)]
pub struct CommandGroup {
    /// The name.
    pub name: &'static str,
    /// What follows a message about wrong arguments.
    pub usage: &'static str,
}

impl CommandGroup {
    /// Runs the command and ends the process, if the first argument of the program is the name of the group. Else it does
    /// nothing.
    pub fn handle(
        &self,
        command: impl FnOnce(&mut dyn Iterator<Item = String>) -> Result<CommandReport, CommandFailure>,
    ) {
        let mut arguments = std::env::args().skip(1);
        if arguments.next().as_deref() == Some(self.name) {
            let is_json = std::env::args().any(|argument| argument == "--json");
            let output = is_json.then(set_standard_output_aside).flatten();
            let report = command(&mut arguments);
            let code = match output {
                Some(mut output) => self.finish(report, &mut output, &mut io::stderr()),
                None => self.finish(report, &mut io::stdout(), &mut io::stderr()),
            };
            std::process::exit(code);
        }
    }

    /// Prints what a command reports, and returns its exit code: 0 for success, 1 for a failure, 2 for wrong arguments.
    pub fn finish(
        &self,
        report: Result<CommandReport, CommandFailure>,
        output: &mut dyn Write,
        errors: &mut dyn Write,
    ) -> i32 {
        let mut report = match report {
            Ok(report) => report,
            Err(CommandFailure::Failed(message)) => CommandReport {
                output: String::new(),
                failures: vec![message],
            },
            Err(CommandFailure::WrongArguments(message)) => {
                let _ = writeln!(errors, "error: {message}\n\n{}", self.usage);
                return 2;
            }
        };
        if let Err(error) = output.write_all(report.output.as_bytes()) {
            let failure = format!("the output cannot be written: {error}");
            report.failures.push(failure);
        }
        for failure in &report.failures {
            let _ = writeln!(errors, "error: {failure}");
        }
        i32::from(!report.failures.is_empty())
    }
}

/// Standard output for the report alone: what the program writes there meanwhile, such as the log of a subscriber without a
/// writer, goes to standard error. `None` if the system refuses it.
fn set_standard_output_aside() -> Option<File> {
    let output = io::stdout().as_fd().try_clone_to_owned().ok()?;
    rustix::stdio::dup2_stdout(io::stderr()).ok()?;
    Some(output.into())
}

/// What a command prints. It failed if there are failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandReport {
    /// The output.
    pub output: String,
    /// Why it failed, line by line.
    pub failures: Vec<String>,
}

/// The output of a command that succeeded.
impl From<String> for CommandReport {
    fn from(output: String) -> Self {
        Self {
            output,
            failures: Vec::new(),
        }
    }
}

/// Why a command has no report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandFailure {
    /// The arguments are wrong; the usage is printed after the message.
    WrongArguments(String),
    /// The command failed before it had anything to print.
    Failed(String),
}

impl CommandFailure {
    /// Why the command failed.
    pub fn failed(cause: impl Display) -> Self {
        Self::Failed(cause.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: CommandGroup = CommandGroup {
        name: "count",
        usage: "Usage: count WORD...\n",
    };

    /// An output that is closed.
    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_exit_code_tells_success_failure_and_wrong_arguments() {
        let counted = CommandReport {
            output: "3\n".to_owned(),
            failures: vec![
                "one word is empty".to_owned(),
                "another one, too".to_owned(),
            ],
        };
        for (report, code, expected, expected_errors) in [
            (Ok("2\n".to_owned().into()), 0, "2\n", ""),
            (
                Ok(counted),
                1,
                "3\n",
                "error: one word is empty\nerror: another one, too\n",
            ),
            (
                Err(CommandFailure::failed("too many")),
                1,
                "",
                "error: too many\n",
            ),
            (
                Err(CommandFailure::WrongArguments(
                    "a word is missing".to_owned(),
                )),
                2,
                "",
                "error: a word is missing\n\nUsage: count WORD...\n\n",
            ),
        ] {
            let (mut output, mut errors) = (Vec::new(), Vec::new());
            assert_eq!(GROUP.finish(report, &mut output, &mut errors), code);
            assert_eq!(String::from_utf8(output).unwrap(), expected);
            assert_eq!(String::from_utf8(errors).unwrap(), expected_errors);
        }
    }

    #[test]
    fn an_output_that_cannot_be_written_is_a_failure() {
        let mut errors = Vec::new();
        let report = Ok("2\n".to_owned().into());
        assert_eq!(GROUP.finish(report, &mut Closed, &mut errors), 1);
        let errors = String::from_utf8(errors).unwrap();
        assert!(
            errors.starts_with("error: the output cannot be written: "),
            "{errors}"
        );
    }

    #[test]
    fn a_program_without_the_name_of_the_group_goes_on() {
        GROUP.handle(|_| panic!("the first argument of this test is not `count`"));
    }
}
