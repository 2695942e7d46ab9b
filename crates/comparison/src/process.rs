//! Processes of a comparison: where they run, and what they print.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::process::{Child, Command};
use std::thread;

use apus_bench::CpuList;

/// The last bytes of the output of a command that are shown when it fails.
const OUTPUT_SHOWN: i64 = 2000;

/// Starts a process that may use these processors only, as its first thread inherits those of the thread that starts it.
pub(crate) fn spawn_pinned(mut command: Command, cores: Option<CpuList>) -> io::Result<Child> {
    let start = move || {
        if let Some(cores) = cores {
            cores.pin()?;
        }
        command.spawn()
    };
    let started = thread::Builder::new().spawn(start)?.join();
    started.unwrap_or_else(|_| Err(io::Error::other("the thread that starts it failed")))
}

/// The end of what a command has printed.
pub(crate) fn last_output(output: &mut File) -> String {
    let mut text = Vec::new();
    let end = output.seek(SeekFrom::End(0)).unwrap_or(0);
    let begin = i64::try_from(end).unwrap_or(0).saturating_sub(OUTPUT_SHOWN);
    let begin = u64::try_from(begin).unwrap_or(0);
    let read = output
        .seek(SeekFrom::Start(begin))
        .and_then(|_| output.read_to_end(&mut text));
    match read {
        Ok(1..) => format!(
            "; it printed:\n{}",
            String::from_utf8_lossy(&text).trim_end()
        ),
        _ => String::new(),
    }
}
