//! Maps: their entries and their files.

use std::sync::Arc;

use apus_conditions::{GeoDatabases, InvalidMap, RequestMap, RequestMaps, map_lines};

use super::value_files::{MAX_INVALID_LINES, text_of_file};
use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, shown};
use crate::raw::maps::GlobalMap;
use crate::source::Setting;
use crate::value::{FilePath, Map, Text};

/// The maps of `[global]`; `None` if there are none.
pub(super) fn resolve(
    raw: &Map<Text, GlobalMap>,
    geo: &Arc<GeoDatabases>,
    reader: &mut ConfigReader<'_>,
) -> Option<RequestMaps> {
    if raw.0.is_empty() {
        return None;
    }
    let made: Vec<RequestMap> = raw
        .0
        .iter()
        .filter_map(|(name, keys)| map((name, keys), geo, reader).or_else(|| absent_map(name)))
        .collect();
    match RequestMaps::new(made) {
        Ok(maps) => Some(maps),
        Err(mistakes) => {
            for (name, mistake) in mistakes.0 {
                let found = raw.0.iter().find(|(known, _)| *known.0 == *name);
                if let Some((_, keys)) = found {
                    let message = format!("the map `{}`: {mistake}", shown(&name));
                    reader.report(Finding::error(&keys.from.span, message, "in this map"));
                }
            }
            let names = raw.0.iter();
            RequestMaps::new(names.filter_map(|(name, _)| absent_map(name))).ok()
        }
    }
}

/// A map in the place of one with mistakes, which were reported: what uses it has no further ones.
fn absent_map(name: &Setting<Text>) -> Option<RequestMap> {
    let map = RequestMap::new(&name.0, "host").ok()?;
    Some(map.changing())
}

fn map(
    (name, keys): (&Setting<Text>, &Setting<GlobalMap>),
    geo: &Arc<GeoDatabases>,
    reader: &mut ConfigReader<'_>,
) -> Option<RequestMap> {
    let mut map =
        match RequestMap::new(&name.0, &keys.from.0).and_then(|map| map.geo_databases(geo)) {
            Ok(map) => map,
            Err(error) => {
                let (place, label) = match error {
                    InvalidMap::Name => (&name.span, "this name"),
                    _ => (
                        &keys.from.span,
                        "expected a fact of requests, as \"client\" or \"header.x-api-key\"",
                    ),
                };
                reader.report(Finding::error(place, error.to_string(), label));
                return None;
            }
        };
    if let Some(default) = &keys.default {
        map = map.default_value(&default.0);
    }
    let mut is_valid = true;
    for (key, value) in &keys.values.0 {
        if let Err(error) = map.insert(&key.0, &value.0) {
            reader.report(Finding::error(&key.span, error.to_string(), "this key"));
            is_valid = false;
        }
    }
    if let Some(file) = &keys.file {
        map = map.changing();
        is_valid &= read_file(&mut map, file, reader);
    } else if keys.values.0.is_empty() && !reader.has_wrong(&keys.span, &["values", "file"]) {
        reader.report(Finding::warning(
            &keys.span,
            "the map has no keys",
            "expected `values` or `file` in this table",
        ));
    }
    is_valid.then_some(map)
}

/// Adds the entries of a file. Returns whether all are valid.
fn read_file(
    map: &mut RequestMap,
    file: &Setting<FilePath>,
    reader: &mut ConfigReader<'_>,
) -> bool {
    let Some(text) = text_of_file(file, reader) else {
        return false;
    };
    let mut invalid = 0_usize;
    for line in map_lines(&text) {
        let error = match line {
            Ok(line) => match map.insert(&line.key, &line.value) {
                Ok(()) => continue,
                // The keys of a file may be secrets, and the log names what is wrong with it.
                Err(error) => format!("line {}: {}", line.number, error.why()),
            },
            Err(line) => line.to_string(),
        };
        invalid = invalid.saturating_add(1);
        if invalid <= MAX_INVALID_LINES {
            reader.report(Finding::error(&file.span, error, "in this file"));
        }
    }
    if let Some(more @ 1..) = invalid.checked_sub(MAX_INVALID_LINES) {
        let message = format!("{more} more lines are wrong");
        reader.report(Finding::error(&file.span, message, "in this file"));
    }
    invalid == 0
}
