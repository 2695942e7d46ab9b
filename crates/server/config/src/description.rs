//! Descriptions of tables, their keys and their types, of which the reference and the schema are made.

/// The description of a table for the reference and the schema.
pub(super) struct TableDescription {
    /// The name of its type: tables of one type have the same keys.
    pub(super) name: &'static str,
    /// Its doc comment.
    pub(super) doc: &'static str,
    /// Its keys, in the order of their definition.
    pub(super) keys: Vec<KeyDescription>,
}

/// One key of a table.
pub(super) struct KeyDescription {
    pub(super) name: &'static str,
    pub(super) doc: &'static str,
    /// The table that the key is included from, if there is one.
    pub(super) part: Option<&'static str>,
    pub(super) required: bool,
    pub(super) default: Option<serde_json::Value>,
    pub(super) kind: TypeDescription,
}

/// The description of a type for messages, the reference and the schema.
pub(super) struct TypeDescription {
    /// The expected value, as in "a number of seconds".
    pub(super) expected: String,
    /// Its JSON schema.
    pub(super) schema: serde_json::Value,
    /// The table, if values of the type can be one.
    pub(super) table: Option<Box<TableDescription>>,
    /// Whether it is a list of such tables.
    pub(super) repeated: bool,
    /// Whether it is a table of such tables or lists, by names.
    pub(super) named: bool,
}

impl TypeDescription {
    pub(super) fn new(expected: impl Into<String>, schema: serde_json::Value) -> Self {
        Self {
            expected: expected.into(),
            schema,
            table: None,
            repeated: false,
            named: false,
        }
    }
}
