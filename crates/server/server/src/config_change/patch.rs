//! Changes of single keys of a configuration file, which keep its comments and its order.

use apus_control::KeyChange;
use serde_json::Value as Json;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value};

/// The text with these changes.
///
/// # Errors
/// A change does not fit: why.
pub(super) fn patched(text: &str, changes: &[KeyChange]) -> Result<String, String> {
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| error.message().to_owned())?;
    for change in changes {
        apply(document.as_item_mut(), &change.key, &change.value)
            .map_err(|why| format!("`{}`: {why}", change.key.join(".").escape_debug()))?;
    }
    Ok(document.to_string())
}

fn apply(item: &mut Item, key: &[String], value: &Json) -> Result<(), String> {
    let Some((name, rest)) = key.split_first() else {
        return Err("a change needs a key".to_owned());
    };
    if let Some(tables) = item.as_array_of_tables_mut() {
        let found = index(name, tables.iter().map(|table| table as &dyn TableLike))?;
        if rest.is_empty() {
            return match value {
                Json::Null => {
                    tables.remove(found);
                    Ok(())
                }
                _ => Err("change its keys, or remove it with null".to_owned()),
            };
        }
        let table = tables.get_mut(found).ok_or("it is not there")?;
        return apply_to_table(table, rest, value);
    }
    if let Some(array) = item.as_array_mut() {
        return apply_to_array(array, (name, rest), value);
    }
    match item.as_table_like_mut() {
        Some(table) => apply_to_table(table, key, value),
        None => Err("it has no keys".to_owned()),
    }
}

fn apply_to_table(table: &mut dyn TableLike, key: &[String], value: &Json) -> Result<(), String> {
    let Some((name, rest)) = key.split_first() else {
        return Err("a change needs a key".to_owned());
    };
    if !rest.is_empty() {
        if table.get(name).is_none() {
            let mut new = Table::new();
            // A heading without keys of its own would only be in the way.
            new.set_implicit(true);
            table.insert(name, Item::Table(new));
        }
        let item = table.get_mut(name).ok_or("it is not there")?;
        return apply(item, rest, value);
    }
    if value.is_null() {
        return match table.remove(name) {
            Some(_) => Ok(()),
            None => Err("it is not there".to_owned()),
        };
    }
    let new = toml_value(value)?;
    match table.get_mut(name) {
        Some(Item::Value(old)) => {
            let decor = old.decor().clone();
            *old = new;
            // The spaces around it, and the comment behind it.
            *old.decor_mut() = decor;
        }
        Some(Item::None) | None => {
            table.insert(name, Item::Value(new));
        }
        Some(_) => return Err("it is a table: change its keys".to_owned()),
    }
    Ok(())
}

fn apply_to_array(
    array: &mut Array,
    (name, rest): (&str, &[String]),
    value: &Json,
) -> Result<(), String> {
    let found = if array.iter().all(Value::is_inline_table) {
        let tables = array.iter().filter_map(Value::as_inline_table);
        index(name, tables.map(|table| table as &dyn TableLike))?
    } else {
        let number = name.parse().ok();
        number
            .filter(|number| *number < array.len())
            .ok_or("expected the number of an element, from 0")?
    };
    if value.is_null() && rest.is_empty() {
        array.remove(found);
        return Ok(());
    }
    let element = array.get_mut(found).ok_or("it is not there")?;
    if rest.is_empty() {
        *element = toml_value(value)?;
        return Ok(());
    }
    match element.as_inline_table_mut() {
        Some(table) => apply_to_table(table, rest, value),
        None => Err("it has no keys".to_owned()),
    }
}

/// The position of a table by its number from 0, or by its `name`.
fn index<'a>(
    wanted: &str,
    tables: impl Iterator<Item = &'a dyn TableLike>,
) -> Result<usize, String> {
    let mut count = 0;
    let mut by_name = None;
    for (position, table) in tables.enumerate() {
        count += 1;
        let name = table.get("name").and_then(Item::as_str);
        if name == Some(wanted) && by_name.is_none() {
            by_name = Some(position);
        }
    }
    let by_number = wanted.parse().ok().filter(|number| *number < count);
    by_name.or(by_number).ok_or_else(|| {
        format!(
            "none of {count} has the name `{}`; it may also be a number, from 0",
            wanted.escape_debug()
        )
    })
}

fn toml_value(value: &Json) -> Result<Value, String> {
    Ok(match value {
        Json::Null => return Err("null stands only for a key that is removed".to_owned()),
        Json::Bool(one) => Value::from(*one),
        Json::String(text) => Value::from(text.as_str()),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Value::from(whole),
            (None, Some(number)) if !value.is_u64() => Value::from(number),
            _ => return Err(format!("{number} is too large for TOML")),
        },
        Json::Array(values) => {
            let values: Result<Vec<_>, _> = values.iter().map(toml_value).collect();
            Value::Array(values?.into_iter().collect())
        }
        Json::Object(fields) => {
            let mut table = InlineTable::new();
            for (name, value) in fields {
                table.insert(name, toml_value(value)?);
            }
            Value::InlineTable(table)
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = "\
# About the server.
[global]
workers = 2 # one for each core

[[sites]]
name = \"shop\"
listen = [80, 81]
root = \"public\" # the shop
rules = [{ name = \"bots\", when = \"bot\", deny = 403 }]

[[sites]]
listen = 82
root = \"other\"
";

    fn patch(key: &[&str], value: Json) -> Result<String, String> {
        let key = key.iter().map(|part| (*part).to_owned()).collect();
        patched(TEXT, &[KeyChange { key, value }])
    }

    #[test]
    fn keys_change_and_comments_stay() {
        for (key, value, old, new) in [
            (
                &["global", "workers"][..],
                json!(4),
                "workers = 2 #",
                "workers = 4 #",
            ),
            (
                &["sites", "shop", "root"],
                json!("new"),
                "\"public\" #",
                "\"new\" #",
            ),
            (
                &["sites", "1", "root"],
                json!("new"),
                "\"other\"",
                "\"new\"",
            ),
            (
                &["sites", "shop", "listen", "1"],
                json!(8081),
                "81]",
                "8081]",
            ),
            (
                &["sites", "shop", "rules", "bots", "deny"],
                json!(404),
                "403",
                "404",
            ),
            (
                &["sites", "1", "headers", "set"],
                json!({ "X-A": ["b", 1.5, true] }),
                "root = \"other\"\n",
                "root = \"other\"\n\n[sites.headers]\nset = { X-A = [\"b\", 1.5, true] }\n",
            ),
            (
                &["sites", "1", "headers", "set", "X-A"],
                json!("b"),
                "root = \"other\"\n",
                "root = \"other\"\n\n[sites.headers.set]\nX-A = \"b\"\n",
            ),
            (
                &["sites", "shop", "root"],
                Json::Null,
                "root = \"public\" # the shop\n",
                "",
            ),
        ] {
            assert_eq!(
                patch(key, value).unwrap(),
                TEXT.replacen(old, new, 1),
                "{key:?}"
            );
        }
        let removed = patch(&["sites", "shop"], Json::Null).unwrap();
        assert!(
            !removed.contains("shop\"") && removed.contains("other"),
            "{removed}"
        );
    }

    #[test]
    fn what_does_not_fit_is_said() {
        for (key, value, expected) in [
            (&[][..], json!(1), "needs a key"),
            (
                &["sites", "blog", "root"],
                json!("x"),
                "none of 2 has the name `blog`",
            ),
            (&["sites", "2"], Json::Null, "none of 2"),
            (&["sites", "0"], json!({}), "change its keys"),
            (&["global"], json!(1), "it is a table"),
            (&["global", "workers", "x"], json!(1), "it has no keys"),
            (&["global", "nothing"], Json::Null, "it is not there"),
            (&["global", "workers"], json!(u64::MAX), "too large"),
            (
                &["sites", "shop", "listen", "2"],
                json!(1),
                "number of an element",
            ),
            (
                &["sites", "shop", "listen"],
                json!([null]),
                "null stands only",
            ),
        ] {
            let error = patch(key, value).unwrap_err();
            assert!(error.contains(expected), "{key:?}: {error}");
        }
    }
}
