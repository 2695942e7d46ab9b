//! Conditions in keys: a text, or a table of facts.

use apus_conditions::{FACTS, TableField, TableValues};
use serde_json::json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::description::TypeDescription;
use crate::keys::{ConfigReader, KeyType, ValueNode};
use crate::source::SourceSpan;

/// A condition as it is written, which is compiled when the names that it may use are known.
#[derive(Clone, Debug)]
pub(crate) enum When {
    Text(String),
    Table(Vec<(TableField, SourceSpan)>),
}

impl KeyType for When {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        match node.value {
            DeValue::String(_) => node.text(reader, EXPECTED).map(Self::Text),
            DeValue::Table(table) => {
                let mut fields = Vec::new();
                let is_read = read_table(table, "", node.span.file, reader, &mut fields);
                is_read.then_some(Self::Table(fields))
            }
            _ => {
                reader.wrong_type(node, EXPECTED);
                None
            }
        }
    }

    fn type_description() -> TypeDescription {
        let facts: Vec<_> = FACTS.iter().map(|fact| fact.name()).collect();
        TypeDescription::new(
            EXPECTED,
            json!({"anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "object", "description": format!("facts: {}", facts.join(", "))},
            ]}),
        )
    }
}

const EXPECTED: &str = "a condition, or a table of facts";

/// Reads the facts of a table. `header.x` is a table in a table, as dots in keys are.
fn read_table(
    table: &DeTable<'_>,
    prefix: &str,
    file: usize,
    reader: &mut ConfigReader<'_>,
    fields: &mut Vec<(TableField, SourceSpan)>,
) -> bool {
    let mut is_read = true;
    for (key, value) in table {
        let name = format!("{prefix}{}", key.get_ref());
        if let DeValue::Table(inner) = value.get_ref() {
            is_read &= read_table(inner, &format!("{name}."), file, reader, fields);
            continue;
        }
        let node = ValueNode::new(value, file);
        let place = SourceSpan {
            file,
            bytes: key.span().start..value.span().end,
        };
        match values(&node, file, reader) {
            Some(values) => fields.push((TableField { fact: name, values }, place)),
            None => is_read = false,
        }
    }
    is_read
}

fn values(node: &ValueNode<'_>, file: usize, reader: &mut ConfigReader<'_>) -> Option<TableValues> {
    match node.value {
        DeValue::Boolean(flag) => Some(TableValues::Flag(*flag)),
        DeValue::Array(items) => {
            let read = |item: &Spanned<DeValue<'_>>, reader: &mut ConfigReader<'_>| {
                text(&ValueNode::new(item, file), reader)
            };
            let texts: Vec<_> = items.iter().map(|item| read(item, reader)).collect();
            texts
                .into_iter()
                .collect::<Option<_>>()
                .map(TableValues::Texts)
        }
        _ => text(node, reader).map(|text| TableValues::Texts(vec![text])),
    }
}

fn text(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<String> {
    match node.value {
        DeValue::Integer(number) => Some(number.as_str().to_owned()),
        _ => node.text(reader, "a text, a number, a list of them, true or false"),
    }
}
