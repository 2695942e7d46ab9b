//! Files of values, which are read again when they change: lists and maps.

use super::tls;
use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::source::Setting;
use crate::value::FilePath;

/// The invalid lines of a file that are reported one by one.
pub(super) const MAX_INVALID_LINES: usize = 10;

/// The text of a file that is read again when it changes.
pub(super) fn text_of_file(
    file: &Setting<FilePath>,
    reader: &mut ConfigReader<'_>,
) -> Option<String> {
    let bytes = tls::file(file, reader)?;
    match String::from_utf8(bytes.to_vec()) {
        Ok(text) => Some(text),
        Err(_) => {
            reader.report(Finding::error(
                &file.span,
                "the file is not UTF-8",
                "this file",
            ));
            None
        }
    }
}
