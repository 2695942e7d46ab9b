//! The reference of `apus.toml`, made from the definitions of the keys.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::OnceLock;

use super::description::{KeyDescription, TableDescription};
use super::keys::ConfigTable;
use super::raw::File;
use super::table_schema::plain;

/// The reference of all keys, in Markdown.
pub fn reference() -> String {
    let mut reference = Reference {
        text: String::from(
            "# Reference of apus.toml\n\n\
             Made from the definitions of the keys; `APUS_BLESS=1 cargo test -p apus-config` writes \
             it anew. For a start, read [configuration.md](configuration.md).\n\n\
             Relative paths are relative to the file in which they stand. In every string, `${NAME}` \
             is the environment variable `NAME`, `${NAME:-default}` has a default, and `$${` is a \
             plain `${`.\n\n\
             A time is a number of seconds, or a string with units (`ms`, `s`, `m`, `h`, `d`): `\"1m30s\"`. A size is a number in the \
             unit that its key names, or a string with a unit (`B`, `K`, `M`, `G`, `T`, or `KB`, `KiB` and so on, in either case), each \
             1024 of the one before: `\"16M\"`, `\"512 KB\"`.\n",
        ),
        seen: BTreeMap::new(),
    };
    reference.table(root(), "");
    reference.text
}

/// The tables that have a key of this name.
pub(super) fn tables_with(name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for_each_key(root(), "", false, &mut |path, repeated, key| {
        if key.name == name && !path.is_empty() {
            found.push(header(path, repeated));
        }
    });
    found.dedup();
    found
}

fn root() -> &'static TableDescription {
    static ROOT: OnceLock<TableDescription> = OnceLock::new();
    ROOT.get_or_init(File::description)
}

fn for_each_key(
    table: &TableDescription,
    path: &str,
    repeated: bool,
    visit: &mut dyn FnMut(&str, bool, &KeyDescription),
) {
    for key in &table.keys {
        visit(path, repeated, key);
        if let Some(inner) = &key.kind.table {
            for_each_key(inner, &path_of(path, key), key.kind.repeated, visit);
        }
    }
}

/// The path of the table that a key has.
fn path_of(path: &str, key: &KeyDescription) -> String {
    let own = join(path, key.name);
    if key.kind.named {
        join(&own, "NAME")
    } else {
        own
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn header(path: &str, repeated: bool) -> String {
    if repeated {
        format!("`[[{path}]]`")
    } else {
        format!("`[{path}]`")
    }
}

struct Reference {
    text: String,
    /// The headers under which the tables are described, by their types.
    seen: BTreeMap<&'static str, String>,
}

impl Reference {
    fn table(&mut self, table: &TableDescription, path: &str) {
        let mut parts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut inner = Vec::new();
        let mut own_parts = Vec::new();
        for key in &table.keys {
            if let Some(part) = key.part {
                if self.seen.contains_key(part) {
                    parts.entry(part).or_default().push(key.name);
                    continue;
                }
                own_parts.push(part);
            }
            self.key(key, path);
            if let Some(table) = &key.kind.table {
                inner.push((key, table));
            }
        }
        for (part, names) in parts {
            let of = self.seen.get(part).cloned().unwrap_or_default();
            let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            self.push(&format!(
                "\nAnd all of these, as in {of}: {}.\n",
                names.join(", ")
            ));
        }
        for part in own_parts {
            self.seen.insert(part, "`[[sites]]`".to_owned());
        }
        for (key, table) in inner {
            let path = path_of(path, key);
            let header = header(&path, key.kind.repeated);
            // The keys of a type are described once.
            if self.seen.get(table.name) != Some(&header) {
                continue;
            }
            self.push(&format!("\n## {header}\n\n{}\n", plain(table.doc)));
            self.table(table, &path);
        }
    }

    fn key(&mut self, key: &KeyDescription, path: &str) {
        let mut line = format!("\n- **`{}`**: {}", key.name, plain(key.doc));
        let mut facts = Vec::new();
        match &key.kind.table {
            Some(table) => {
                let here = header(&path_of(path, key), key.kind.repeated);
                let described = self.seen.entry(table.name).or_insert(here);
                facts.push(format!("{}, see {described}", key.kind.expected));
            }
            None => facts.push(key.kind.expected.clone()),
        }
        if key.required {
            facts.push("must be there".to_owned());
        }
        match &key.default {
            Some(serde_json::Value::Null) | None => {}
            Some(serde_json::Value::Array(items)) if items.is_empty() => {}
            Some(serde_json::Value::Object(_)) => {}
            Some(default) => facts.push(format!("default `{default}`")),
        }
        let _ = write!(line, "\n  *{}.*\n", capitalised(&facts.join("; ")));
        self.push(&line);
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
