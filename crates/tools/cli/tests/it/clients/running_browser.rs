//! Browsers without a window, as processes.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::program;

/// A browser that runs until it is dropped.
pub(super) struct RunningBrowser(Child);

impl RunningBrowser {
    fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.stderr(Stdio::null()).spawn().unwrap())
    }

    /// Chromium, which writes the port of its protocol to the file `DevToolsActivePort` of the profile.
    pub(super) fn chromium(profile: &Path, has_scripts: bool, url: &str) -> Self {
        Self::start(
            program("chromium")
                .args(["--headless", "--no-sandbox", "--disable-gpu"])
                .args(["--no-first-run", "--disable-background-networking"])
                .args(["--disable-component-update", "--disable-sync"])
                // Without it, the browser ends when the page has loaded.
                .arg("--remote-debugging-port=0")
                .arg(format!("--user-data-dir={}", profile.display()))
                .arg(format!("--blink-settings=scriptEnabled={has_scripts}"))
                .arg(url),
        )
    }

    pub(super) fn firefox(profile: &Path, has_scripts: bool, url: &str) -> Self {
        Self::start(firefox(profile, has_scripts).arg(url))
    }

    /// Firefox that can be driven: it writes the port of its protocol to the file `WebDriverBiDiServer.json` of the profile.
    pub(super) fn driven_firefox(profile: &Path) -> Self {
        Self::start(firefox(profile, true).args(["--remote-debugging-port=0", "about:blank"]))
    }
}

impl Drop for RunningBrowser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn firefox(profile: &Path, has_scripts: bool) -> Command {
    fs::create_dir_all(profile).unwrap();
    let settings = format!(
        "user_pref(\"datareporting.policy.dataSubmissionEnabled\", false);\n\
         user_pref(\"app.normandy.enabled\", false);\n\
         user_pref(\"javascript.enabled\", {has_scripts});\n"
    );
    fs::write(profile.join("user.js"), settings).unwrap();
    let mut command = program("firefox-esr");
    command
        .env("HOME", profile)
        .args(["--headless", "--no-remote", "--profile"])
        .arg(profile);
    command
}
