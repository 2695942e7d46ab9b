//! What a key turns on, turns off, or leaves to the site.

use crate::keys::{ConfigReader, ConfigTable};
use crate::source::{Setting, SourceSpan};
use crate::value::Switch;

/// A layer whose key turns it on, off, or gives it a table.
pub(super) fn switched<K: ConfigTable + Clone, L: Clone>(
    own: Option<&Setting<Switch<K>>>,
    site: &Option<L>,
    reader: &mut ConfigReader<'_>,
    make: impl FnOnce(&K, &SourceSpan, &mut ConfigReader<'_>) -> Option<L>,
) -> Option<L> {
    let Some(own) = own else {
        return site.clone();
    };
    let keys = own.table(&own.span, reader)?;
    make(&keys, &own.span, reader)
}
