//! The plans of a limit, in its table or in a file.

use serde_json::json;
use toml::de::DeValue;

use crate::description::TypeDescription;
use crate::keys::{ConfigReader, KeyType, StringType, ValueNode, parse_string};
use crate::source::{Setting, SourceSpan};
use crate::string_type::limit::TierText;
use crate::value::{FilePath, Map, Text};

/// The plans of a limit: values of its key with their rates or quotas, and a file with more of them.
///
/// `file` may be a value of the key, too: it is one if what follows it is a rate or a quota.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitTiers {
    pub(crate) values: Map<Text, TierText>,
    pub(crate) file: Option<Setting<FilePath>>,
}

const FILE: &str = "file";

impl KeyType for LimitTiers {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let DeValue::Table(table) = node.value else {
            reader.wrong_type(node, &Self::type_description().expected);
            return None;
        };
        let mut tiers = Self::default();
        for (key, value) in table {
            let span = SourceSpan {
                file: node.span.file,
                bytes: key.span(),
            };
            let node = ValueNode::new(value, node.span.file);
            let is_file = key.get_ref() == FILE
                && matches!(node.value, DeValue::String(text) if TierText::parse(text).is_err());
            if is_file {
                tiers.file = Setting::read(&node, reader);
                continue;
            }
            let name = parse_string::<Text>(key.get_ref(), &span, reader);
            let value = Setting::read(&node, reader);
            if let (Some(name), Some(value)) = (name, value) {
                let name = Setting {
                    value: name,
                    span,
                    given: true,
                };
                tiers.values.0.push((name, value));
            }
        }
        tiers.values.0.sort_by_key(|(key, _)| key.span.bytes.start);
        Some(tiers)
    }

    fn type_description() -> TypeDescription {
        let values = Map::<Text, TierText>::type_description();
        TypeDescription::new(
            format!(
                "{}; its `{FILE}` is a file with more of them",
                values.expected
            ),
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
        )
    }

    fn shown(&self) -> serde_json::Value {
        self.values.shown()
    }
}
