//! The browser of the user, for `--open`.

use std::process::{Command, Stdio};

use tracing::warn;

/// Opens a URL in the browser. A failure is logged.
pub fn open_in_browser(url: &str) {
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let started = Command::new(opener)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = started {
        warn!(%error, "cannot start {opener}; open {url} in a browser");
    }
}
