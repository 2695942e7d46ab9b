//! Locations that are never used, because a regular expression takes all their paths.

use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, shown};
use crate::raw::Location;
use crate::source::Setting;

/// Warns of locations that are never used.
pub(super) fn check(locations: &[Setting<Location>], reader: &mut ConfigReader<'_>) {
    let expressions: Vec<_> = locations
        .iter()
        .enumerate()
        .filter(|(_, location)| location.path.value.0.literal().is_none())
        .collect();
    for (at, location) in locations.iter().enumerate() {
        let pattern = &location.path.value.0;
        let is_expression = pattern.literal().is_none();
        // Of expressions, the first that matches is used.
        let mut before = expressions
            .iter()
            .filter(|(other, _)| *other != at && (!is_expression || *other < at));
        let Some((_, other)) = before.find(|(_, other)| other.path.value.0.takes_all_of(pattern))
        else {
            continue;
        };
        let expression = shown(&other.path.value.0.to_string());
        let finding = Finding::warning(
            &location.path.span,
            format!(
                "the location `{}` is never used",
                shown(&pattern.to_string())
            ),
            format!("`{expression}` takes all its paths"),
        )
        .related(&other.path.span, "the expression, which is tried first");
        reader.report(match pattern.literal() {
            Some(prefix) => finding.help(format!(
                "write \"^~ {prefix}\", before which no expression is tried"
            )),
            None => finding.help("write the narrower expression above the wider one"),
        });
    }
}
