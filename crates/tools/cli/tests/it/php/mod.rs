//! PHP applications of Debian's packages behind the binary: they are installed and used over HTTP,
//! and their responses are compared with the responses of nginx in front of the same PHP-FPM.

mod body_sizes;
mod browser;
mod compare;
mod concurrent_requests;
mod differential;
mod dokuwiki;
mod doors;
mod error_log;
mod faults;
mod frameworks;
mod internal_fields;
mod internal_redirects;
mod overload;
mod params;
mod phpmyadmin;
mod presets;
mod requests_of_scripts;
mod resident_applications;
mod script_mistakes;
mod scripts;
mod server;
mod slow_readers;
mod source_files;
pub(crate) mod stack;
mod visitor;
mod wordpress;
mod wordpress_cache;
mod workers;

use std::path::{Path, PathBuf};

use crate::clients::program;

/// A file of `tests/origins/php`.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/origins/php")
        .join(name)
}

/// The SHA-256 of a file, in hexadecimal digits.
fn sha256(file: &Path) -> String {
    let output = program("sha256sum").arg(file).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split(' ').next().unwrap().to_owned()
}
