//! The mechanism behind every key: one definition makes the parser, the reference and the schema.
//!
//! [`keys!`] defines a table as a struct whose fields are its keys: name, doc comment, type, default.
//! A type is a [`Value`], which knows how it is read and how it is described. Nothing stops at the
//! first mistake: a value that cannot be read is reported to the [`Reader`] and left out.

use serde_json::json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::LocalCertificates;
use super::diagnostics::{Finding, nearest};
use super::environment::{self, Unfilled};
use super::files::ConfigFiles;
use super::source::{At, Place, Sources};

/// What reading needs and what it finds.
pub(super) struct Reader<'a> {
    pub(super) sources: Sources,
    pub(super) findings: Vec<Finding>,
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    pub(super) local_certificates: Option<LocalCertificates<'a>>,
    pub(super) files: &'a ConfigFiles,
    /// The tables that have a key of this name, as they are written.
    pub(super) tables_with: fn(&str) -> Vec<String>,
    wrong: Vec<(Place, String)>,
    left_out: Vec<Place>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        variable: &'a dyn Fn(&str) -> Option<String>,
        local_certificates: Option<LocalCertificates<'a>>,
        files: &'a ConfigFiles,
        tables_with: fn(&str) -> Vec<String>,
    ) -> Self {
        Self {
            sources: Sources::default(),
            findings: Vec::new(),
            variable,
            local_certificates,
            files,
            tables_with,
            wrong: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Whether the table at `place` has one of these keys with a value that could not be read. That
    /// was reported, so their absence is no second mistake.
    pub(super) fn has_wrong(&self, place: &Place, keys: &[&str]) -> bool {
        self.wrong
            .iter()
            .any(|(table, key)| table == place && keys.contains(&key.as_str()))
    }

    /// Notes that a table of the list at `list` had a mistake and was left out.
    pub(super) fn leave_out(&mut self, list: &Place) {
        self.left_out.push(list.clone());
    }

    /// Whether the list at `list` lacks a table that had a mistake.
    pub(super) fn has_left_out(&self, list: &Place) -> bool {
        self.left_out.contains(list)
    }

    /// Notes a mistake.
    pub(super) fn report(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Notes that a value of the wrong type stands at `node`.
    pub(super) fn wrong_type(&mut self, node: &Node<'_>, expected: &str) {
        let found = match node.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.report(Finding::error(
            &node.place,
            format!("expected {expected}, found {found}"),
            format!("expected {expected}"),
        ));
    }
}

/// A value of the file, and where it stands.
pub(super) struct Node<'a> {
    pub(super) value: &'a DeValue<'a>,
    pub(super) place: Place,
}

impl<'a> Node<'a> {
    pub(super) fn new(value: &'a Spanned<DeValue<'a>>, file: usize) -> Self {
        Self {
            value: value.get_ref(),
            place: Place {
                file,
                span: value.span(),
            },
        }
    }

    /// The string that stands here, with the environment filled in.
    pub(super) fn text(&self, reader: &mut Reader<'_>, expected: &str) -> Option<String> {
        let DeValue::String(text) = self.value else {
            reader.wrong_type(self, expected);
            return None;
        };
        expand(text, &self.place, reader)
    }
}

/// `text` with the environment filled in.
fn expand(text: &str, place: &Place, reader: &mut Reader<'_>) -> Option<String> {
    match environment::expand(text, reader.variable) {
        Ok(text) => Some(text),
        Err(Unfilled::NotSet(name)) => {
            reader.report(
                Finding::error(
                    place,
                    format!("the environment variable {name} is not set"),
                    "read here",
                )
                .help(format!("set it, or give a default: ${{{name}:-default}}")),
            );
            None
        }
        Err(Unfilled::NotAReference(text)) => {
            reader.report(
                Finding::error(
                    place,
                    format!("`{}` names no environment variable", shown(&text)),
                    "expected ${NAME} or ${NAME:-default}",
                )
                .help("write $${ for a plain ${"),
            );
            None
        }
    }
}

/// A table of the file, and where it stands.
pub(super) struct TableNode<'a> {
    pub(super) table: &'a DeTable<'a>,
    pub(super) place: Place,
}

impl TableNode<'_> {
    /// Reads one key. `Err` if it is there but wrong, which has been reported then.
    pub(super) fn key<T: Value>(
        &self,
        name: &str,
        reader: &mut Reader<'_>,
    ) -> Result<Option<At<T>>, Wrong> {
        let Some(value) = self.table.get(name) else {
            return Ok(None);
        };
        let node = Node::new(value, self.place.file);
        let read = At::read(&node, reader);
        if read.is_none() {
            reader.wrong.push((self.place.clone(), name.to_owned()));
        }
        read.map(Some).ok_or(Wrong)
    }

    /// Reports keys that do not exist.
    pub(super) fn refuse_others(&self, known: &[&'static str], reader: &mut Reader<'_>) {
        for (key, _) in self.table {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let place = Place {
                file: self.place.file,
                span: key.span(),
            };
            let finding = Finding::error(
                &place,
                format!("unknown key `{}`", shown(name)),
                "no such key in this table",
            );
            reader.report(match nearest(name, known.iter().copied()) {
                Some(near) => finding.help(format!("did you mean `{near}`?")),
                None => match (reader.tables_with)(name).as_slice() {
                    [] => finding.help(format!("keys of this table: {}", known.join(", "))),
                    tables => finding.help(format!("it is a key of {}", tables.join(" and "))),
                },
            });
        }
    }

    /// Reports that a key is missing that must be there.
    pub(super) fn missing(&self, name: &str, reader: &mut Reader<'_>) {
        reader.report(Finding::error(
            &self.place,
            format!("the key `{name}` is missing"),
            format!("expected `{name}` in this table"),
        ));
    }
}

/// A value stands there, but not one that can be read; the mistake has been reported.
pub(super) struct Wrong;

impl<T: Value> At<T> {
    pub(super) fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            value: T::read(node, reader)?,
            place: node.place.clone(),
            given: true,
        })
    }
}

/// How a value is described to people and programs.
pub(super) struct Kind {
    /// What to write, as in "a number of seconds".
    pub(super) words: String,
    /// Its JSON schema.
    pub(super) schema: serde_json::Value,
    /// The table that it is, or may be.
    pub(super) table: Option<Box<Description>>,
    /// Whether it is a list of such tables.
    pub(super) repeated: bool,
}

impl Kind {
    pub(super) fn new(words: impl Into<String>, schema: serde_json::Value) -> Self {
        Self {
            words: words.into(),
            schema,
            table: None,
            repeated: false,
        }
    }
}

/// A type of value that a key can have.
pub(super) trait Value: Sized {
    /// Reads it. `None` after the mistake has been reported.
    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self>;

    /// What it is.
    fn kind() -> Kind;

    /// The value as it would be written, to show defaults.
    fn shown(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// A type of value that is written as a string.
pub(super) trait Word: Sized {
    /// What to write, as in "a file name".
    const WORDS: &'static str;

    /// Parses it.
    ///
    /// # Errors
    /// What is wrong with it, as a half sentence.
    fn parse(text: &str) -> Result<Self, String>;

    /// The words there are, if they can be counted.
    fn choices() -> &'static [&'static str] {
        &[]
    }

    /// The value as it would be written.
    fn word(&self) -> Option<&str> {
        None
    }
}

/// Reports that `text` is no `T`, and why.
pub(super) fn parse_word<T: Word>(text: &str, place: &Place, reader: &mut Reader<'_>) -> Option<T> {
    let why = match T::parse(text) {
        Ok(value) => return Some(value),
        Err(why) => why,
    };
    let shown = shown(text);
    let title = if why.is_empty() {
        format!("`{shown}` is not {}", T::WORDS)
    } else {
        format!("`{shown}`: {why}")
    };
    let finding = Finding::error(place, title, format!("expected {}", expected::<T>()));
    reader.report(match nearest(text, T::choices().iter().copied()) {
        Some(near) => finding.help(format!("did you mean \"{near}\"?")),
        None => finding,
    });
    None
}

/// A value as a title can hold it: on one line, and not all of a long one.
pub(super) fn shown(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut shown = String::new();
    for (at, character) in text.chars().enumerate() {
        if at == LONGEST {
            shown.push_str("...");
            break;
        }
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// What to write for a `T`.
fn expected<T: Word>() -> String {
    match T::choices() {
        [] => T::WORDS.to_owned(),
        choices => choices
            .iter()
            .map(|word| format!("\"{word}\""))
            .collect::<Vec<_>>()
            .join(" or "),
    }
}

impl<T: Word> Value for T {
    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = node.text(reader, &expected::<T>())?;
        parse_word(&text, &node.place, reader)
    }

    fn kind() -> Kind {
        let schema = match T::choices() {
            [] => json!({"type": "string"}),
            choices => json!({"enum": choices}),
        };
        Kind::new(expected::<T>(), schema)
    }

    fn shown(&self) -> serde_json::Value {
        self.word().map_or(serde_json::Value::Null, Into::into)
    }
}

/// What a table is, for the reference and the schema.
pub(super) struct Description {
    /// The name of its type, which tells whether two tables have the same keys.
    pub(super) name: &'static str,
    /// Its doc comment.
    pub(super) doc: &'static str,
    /// Its keys, in the order of their definition.
    pub(super) keys: Vec<Key>,
}

/// One key of a table.
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) doc: &'static str,
    /// The type of table that it comes from, if that is part of several.
    pub(super) part: Option<&'static str>,
    pub(super) required: bool,
    pub(super) default: Option<serde_json::Value>,
    pub(super) kind: Kind,
}

/// A table with keys that are fixed.
pub(super) trait Table: Sized {
    /// Its keys.
    fn names() -> Vec<&'static str>;

    /// What it is.
    fn description() -> Description;

    /// Reads its keys and leaves all others alone.
    fn read_keys(node: &TableNode<'_>, reader: &mut Reader<'_>) -> Option<Self>;

    /// Reads it and reports keys that do not exist.
    fn read_table(node: &TableNode<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let table = Self::read_keys(node, reader);
        node.refuse_others(&Self::names(), reader);
        table
    }

    /// What stands for a table that is not there; `None` if that has to be.
    fn absent(place: &Place, reader: &mut Reader<'_>) -> Option<Self> {
        let table = DeTable::new();
        Self::read_table(
            &TableNode {
                table: &table,
                place: place.clone(),
            },
            reader,
        )
    }
}

/// The name of a key from the name of its field, which may be a raw identifier.
pub(super) fn key_name(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

/// Defines a table of the configuration.
///
/// ```text
/// keys! {
///     /// What the table is for.
///     pub(super) struct Name {
///         /// What the key does.                      name: Type          Option<At<Type>>
///         key: Type = default,                        with a default:     At<Type>
///         key [required]: Type,                       must be there:      At<Type>
///         ..field: Table,                             all keys of another table
///     }
/// }
/// ```
macro_rules! keys {
    (
        $(#[doc = $table_doc:literal])*
        $vis:vis struct $Name:ident {
            $(
                $(#[doc = $doc:literal])*
                $key:ident $([$required:ident])? : $Type:ty $(= $default:expr)?,
            )*
            $( ..$part:ident: $Part:ty, )?
        }
    ) => {
        $(#[doc = $table_doc])*
        #[derive(Clone, Debug)]
        $vis struct $Name {
            $(
                $(#[doc = $doc])*
                $vis $key: keys!(@field $([$required])? $Type $(= $default)?),
            )*
            $(
                /// The keys of another table that stand in this one too.
                $vis $part: $Part,
            )?
        }

        impl $crate::keys::Table for $Name {
            fn names() -> Vec<&'static str> {
                #[allow(unused_mut, reason = "a table may have no keys of another table")]
                let mut names = vec![$($crate::keys::key_name(stringify!($key))),*];
                $( names.extend(<$Part as $crate::keys::Table>::names()); )?
                names
            }

            fn description() -> $crate::keys::Description {
                #[allow(unused_mut, reason = "a table may have no keys of another table")]
                let mut keys = vec![$(
                    $crate::keys::Key {
                        name: $crate::keys::key_name(stringify!($key)),
                        doc: concat!($($doc, "\n"),*),
                        part: None,
                        required: keys!(@is_required $($required)?),
                        default: keys!(@shown $Type $(= $default)?),
                        kind: <$Type as $crate::keys::Value>::kind(),
                    }
                ),*];
                $(
                    let part = <$Part as $crate::keys::Table>::description();
                    keys.extend(part.keys.into_iter().map(|key| $crate::keys::Key {
                        part: Some(part.name),
                        ..key
                    }));
                )?
                $crate::keys::Description {
                    name: stringify!($Name),
                    doc: concat!($($table_doc, "\n"),*),
                    keys,
                }
            }

            fn read_keys(
                node: &$crate::keys::TableNode<'_>,
                reader: &mut $crate::keys::Reader<'_>,
            ) -> Option<Self> {
                $(
                    let $key = node.key::<$Type>(
                        $crate::keys::key_name(stringify!($key)),
                        reader,
                    );
                )*
                $( let $part = <$Part as $crate::keys::Table>::read_keys(node, reader); )?
                $(
                    let $key = keys!(
                        @finish node reader $key $([$required])? $Type $(= $default)?
                    );
                )*
                Some(Self {
                    $( $key: keys!(@unwrap $key $([$required])?), )*
                    $( $part: $part?, )?
                })
            }
        }

        impl $crate::keys::Value for $Name {
            fn read(
                node: &$crate::keys::Node<'_>,
                reader: &mut $crate::keys::Reader<'_>,
            ) -> Option<Self> {
                let toml::de::DeValue::Table(table) = node.value else {
                    reader.wrong_type(node, "a table");
                    return None;
                };
                <Self as $crate::keys::Table>::read_table(
                    &$crate::keys::TableNode { table, place: node.place.clone() },
                    reader,
                )
            }

            fn kind() -> $crate::keys::Kind {
                let description = <Self as $crate::keys::Table>::description();
                $crate::keys::Kind {
                    words: "a table".to_owned(),
                    schema: $crate::table_schema::of_table(&description),
                    table: Some(Box::new(description)),
                    repeated: false,
                }
            }
        }
    };

    (@field [required] $Type:ty) => { $crate::source::At<$Type> };
    (@field $Type:ty = $default:expr) => { $crate::source::At<$Type> };
    (@field $Type:ty) => { Option<$crate::source::At<$Type>> };

    (@is_required required) => { true };
    (@is_required) => { false };

    (@shown $Type:ty = $default:expr) => {
        Some($crate::keys::Value::shown(&{ let value: $Type = $default; value }))
    };
    (@shown $Type:ty) => { None };

    (@finish $node:ident $reader:ident $key:ident [required] $Type:ty) => {{
        if let Ok(None) = $key {
            $node.missing($crate::keys::key_name(stringify!($key)), $reader);
        }
        $key.ok().flatten()
    }};
    (@finish $node:ident $reader:ident $key:ident $Type:ty = $default:expr) => {
        $key.ok().flatten().unwrap_or_else(|| $crate::source::At {
            value: $default,
            place: $node.place.clone(),
            given: false,
        })
    };
    (@finish $node:ident $reader:ident $key:ident $Type:ty) => { $key.ok().flatten() };

    (@unwrap $key:ident [required]) => { $key? };
    (@unwrap $key:ident) => { $key };
}

/// Defines a value that is one of a few words.
macro_rules! choices {
    (
        $(#[doc = $doc:literal])*
        $vis:vis $Name:ident: $words:literal {
            $( $(#[doc = $variant_doc:literal])* $Variant:ident = $word:literal, )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $Name {
            $( $(#[doc = $variant_doc])* $Variant, )*
        }

        impl $crate::keys::Word for $Name {
            const WORDS: &'static str = $words;

            fn parse(text: &str) -> Result<Self, String> {
                match text {
                    $( $word => Ok(Self::$Variant), )*
                    _ => Err(String::new()),
                }
            }

            fn choices() -> &'static [&'static str] {
                &[$($word),*]
            }

            fn word(&self) -> Option<&str> {
                Some(match self { $( Self::$Variant => $word, )* })
            }
        }
    };
}

pub(super) use {choices, keys};
