//! The progress of `apus cache warm`.

use std::io::{self, IsTerminal, Write};

use apus_server::WarmResult;
use serde_json::{Value, json};

use crate::output::print_error;

/// The results so far. Failures are printed to standard error at once.
#[derive(Debug, Default)]
pub(crate) struct WarmProgress {
    stored: usize,
    hits: usize,
    not_stored: usize,
    failed: Vec<(String, String)>,
}

impl WarmProgress {
    /// Adds the result of one of `count` URLs; shows the progress on a terminal.
    pub(crate) fn add(&mut self, url: &str, result: &WarmResult, count: usize) {
        let has_terminal = io::stderr().is_terminal();
        match result {
            WarmResult::Stored => self.stored += 1,
            WarmResult::Hit => self.hits += 1,
            WarmResult::NotStored(_) => self.not_stored += 1,
            WarmResult::Failed(why) => {
                if has_terminal {
                    let _ = write!(io::stderr(), "\r\x1b[K");
                }
                let url: String = url.chars().filter(|c| !c.is_control()).collect();
                print_error(&format!("{url}: {why}"));
                self.failed.push((url, why.clone()));
            }
        }
        if has_terminal {
            let done = self.stored + self.hits + self.not_stored + self.failed.len();
            let end = if done == count { "\r\x1b[K" } else { "" };
            let _ = write!(io::stderr(), "\r{done} of {count}{end}");
        }
    }

    pub(crate) fn has_failures(&self) -> bool {
        !self.failed.is_empty()
    }

    /// The counts, for people.
    pub(crate) fn summary(&self) -> String {
        format!(
            "{} stored, {} already stored, {} not cacheable, {} failed\n",
            self.stored,
            self.hits,
            self.not_stored,
            self.failed.len()
        )
    }

    /// The counts, for programs.
    pub(crate) fn to_json(&self) -> Value {
        let failed = self.failed.iter();
        let failed = failed.map(|(url, why)| json!({ "url": url, "why": why }));
        json!({
            "stored": self.stored,
            "hits": self.hits,
            "not_stored": self.not_stored,
            "failed": failed.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_url_is_counted_once_and_failures_are_named() {
        let mut progress = WarmProgress::default();
        let status = "200".parse().unwrap();
        for (url, result) in [
            ("http://a/", WarmResult::Stored),
            ("http://a/b", WarmResult::Hit),
            ("http://a/c", WarmResult::NotStored(status)),
            ("http://a/d\n", WarmResult::Failed("status 500".to_owned())),
        ] {
            progress.add(url, &result, 4);
        }
        assert_eq!(
            progress.summary(),
            "1 stored, 1 already stored, 1 not cacheable, 1 failed\n"
        );
        assert!(progress.has_failures());
        let failed = json!([{"url": "http://a/d", "why": "status 500"}]);
        assert_eq!(progress.to_json()["failed"], failed);
    }
}
