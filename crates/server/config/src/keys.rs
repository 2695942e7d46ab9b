//! The macros and traits that define keys, from which the parser, the reference and the schema are
//! made.
//!
//! [`keys!`] defines a table as a struct whose fields are its keys: name, doc comment, type,
//! default. A type is a [`KeyType`], which reads and describes its values. An invalid value is
//! reported to the [`ConfigReader`] and left out, so that one run finds all errors.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::PathBuf;

use apus_sites::Template;
use serde_json::json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::LocalCertificates;
use super::description::{TableDescription, TypeDescription};
use super::diagnostics::{Finding, nearest};
use super::environment::{self, ExpandError};
use super::equivalents;
use super::files::ConfigFiles;
use super::source::{Setting, SourceFiles, SourceSpan};
use super::template_names::TemplateNames;
use super::value_advice;

/// The state of reading: the files, the findings and the environment.
pub(super) struct ConfigReader<'a> {
    pub(super) sources: SourceFiles,
    pub(super) findings: Vec<Finding>,
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    pub(super) local_certificates: Option<LocalCertificates<'a>>,
    pub(super) files: &'a ConfigFiles,
    /// The tables that have a key of this name.
    pub(super) tables_with: fn(&str) -> Vec<String>,
    /// The key that is read.
    key: String,
    /// The values that replace the values of lines with a syntax error, which was reported.
    pub(super) broken: Vec<SourceSpan>,
    /// Whether lines with errors of syntax are left out, so that what is missing is no mistake.
    pub(super) is_partial: bool,
    wrong: Vec<(SourceSpan, String)>,
    left_out: Vec<SourceSpan>,
    /// The folders that are served, with where they are named.
    pub(super) roots: Vec<(SourceSpan, PathBuf)>,
    /// What templates may name.
    pub(super) template_names: TemplateNames,
}

impl<'a> ConfigReader<'a> {
    pub(super) fn new(
        variable: &'a dyn Fn(&str) -> Option<String>,
        local_certificates: Option<LocalCertificates<'a>>,
        files: &'a ConfigFiles,
        tables_with: fn(&str) -> Vec<String>,
    ) -> Self {
        Self {
            sources: SourceFiles::default(),
            findings: Vec::new(),
            variable,
            local_certificates,
            files,
            tables_with,
            key: String::new(),
            broken: Vec::new(),
            is_partial: false,
            wrong: Vec::new(),
            left_out: Vec::new(),
            roots: Vec::new(),
            template_names: TemplateNames::default(),
        }
    }

    /// Whether the table at `place` has one of these keys with a value that could not be read. That
    /// was reported, so their absence is no second mistake.
    pub(super) fn has_wrong(&self, span: &SourceSpan, keys: &[&str]) -> bool {
        self.wrong
            .iter()
            .any(|(table, key)| table == span && keys.contains(&key.as_str()))
    }

    /// Records that a table of the list at `list` had an error and was left out.
    pub(super) fn leave_out(&mut self, list: &SourceSpan) {
        self.left_out.push(list.clone());
    }

    /// Whether the list at `list` lacks a table that had an error.
    pub(super) fn has_left_out(&self, list: &SourceSpan) -> bool {
        self.left_out.contains(list)
    }

    /// Adds to the first error that others may be found after it is corrected.
    pub(super) fn say_that_more_may_follow(&mut self) {
        let errors = self.findings.iter_mut().filter(|one| one.is_error());
        if let Some(first) = errors.min_by_key(|one| one.place()) {
            first.add_help("other mistakes may be found once this is corrected");
        }
    }

    /// Reports an error or a warning.
    pub(super) fn report(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Reports a value of the wrong type.
    pub(super) fn wrong_type(&mut self, node: &ValueNode<'_>, expected: &str) {
        let found = match node.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let finding = Finding::error(
            &node.span,
            format!("expected {expected}, found {found}"),
            format!("expected {expected}"),
        );
        self.report(
            match value_advice::of_type(&self.key, node.value, expected) {
                Some(help) => finding.help(help),
                None => finding,
            },
        );
    }
}

/// A value of the file and its span.
pub(super) struct ValueNode<'a> {
    pub(super) value: &'a DeValue<'a>,
    pub(super) span: SourceSpan,
}

impl<'a> ValueNode<'a> {
    pub(super) fn new(value: &'a Spanned<DeValue<'a>>, file: usize) -> Self {
        Self {
            value: value.get_ref(),
            span: SourceSpan {
                file,
                bytes: value.span(),
            },
        }
    }

    /// The string with the environment variables expanded.
    pub(super) fn text(&self, reader: &mut ConfigReader<'_>, expected: &str) -> Option<String> {
        let DeValue::String(text) = self.value else {
            reader.wrong_type(self, expected);
            return None;
        };
        expand(text, &self.span, reader)
    }
}

/// `text` with the environment variables expanded.
fn expand(text: &str, span: &SourceSpan, reader: &mut ConfigReader<'_>) -> Option<String> {
    match environment::expand(text, reader.variable) {
        Ok(text) => Some(text),
        Err(ExpandError::NotSet(name)) => {
            let finding = Finding::error(
                span,
                format!("the environment variable {name} is not set"),
                "read here",
            );
            reader.report(finding.help(if is_request_variable(&name) {
                format!(
                    "write ${name} for the variable of a request, or $${{{name}}} before a letter"
                )
            } else {
                format!("set it, or give a default: ${{{name}:-default}}")
            }));
            None
        }
        Err(ExpandError::NotAReference(text)) => {
            reader.report(
                Finding::error(
                    span,
                    format!("`{}` names no environment variable", shown(&text)),
                    "expected ${NAME} or ${NAME:-default}",
                )
                .help("write $${ for a plain ${"),
            );
            None
        }
    }
}

/// Whether requests have a variable of this name.
fn is_request_variable(name: &str) -> bool {
    Template::parse(&format!("${name}")).is_ok()
}

/// A table of the file and its span.
pub(super) struct TableNode<'a> {
    pub(super) table: &'a DeTable<'a>,
    pub(super) span: SourceSpan,
}

impl TableNode<'_> {
    /// Reads one key. `Err` if its value is invalid, which was reported.
    pub(super) fn key<T: KeyType>(
        &self,
        name: &str,
        reader: &mut ConfigReader<'_>,
    ) -> Result<Option<Setting<T>>, InvalidValue> {
        let Some(value) = self.table.get(name) else {
            return Ok(None);
        };
        let node = ValueNode::new(value, self.span.file);
        let outer = std::mem::replace(&mut reader.key, name.to_owned());
        let read = if reader.broken.contains(&node.span) || is_mistaken(&node, reader) {
            None
        } else {
            Setting::read(&node, reader)
        };
        reader.key = outer;
        if read.is_none() {
            reader.wrong.push((self.span.clone(), name.to_owned()));
        }
        read.map(Some).ok_or(InvalidValue)
    }

    /// Reports keys that do not exist.
    pub(super) fn refuse_others(&self, known: &[&'static str], reader: &mut ConfigReader<'_>) {
        for (key, _) in self.table {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let span = SourceSpan {
                file: self.span.file,
                bytes: key.span(),
            };
            let finding = Finding::error(
                &span,
                format!("unknown key `{}`", shown(name)),
                "no such key in this table",
            );
            reader.report(finding.help(advice(name, known, reader)));
        }
    }

    /// Reports that a required key is missing.
    pub(super) fn missing(&self, name: &str, reader: &mut ConfigReader<'_>) {
        if reader.is_partial {
            return;
        }
        reader.report(Finding::error(
            &self.span,
            format!("the key `{name}` is missing"),
            format!("expected `{name}` in this table"),
        ));
    }
}

/// Whether a value says something else than what was meant, which is reported.
fn is_mistaken(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> bool {
    let DeValue::String(text) = node.value else {
        return false;
    };
    let Some(mistaken) = value_advice::mistaken(&reader.key, text) else {
        return false;
    };
    let finding = Finding::error(&node.span, mistaken.title, mistaken.label);
    reader.report(finding.help((mistaken.help)(&shown(text))));
    true
}

/// What to write in place of an unknown key.
fn advice(name: &str, known: &[&'static str], reader: &ConfigReader<'_>) -> String {
    // Tables of changes of fields have names of fields one level below.
    if known.contains(&"set") && known.contains(&"remove") && name.contains('-') {
        let table = &reader.key;
        return format!("a field is set by {table}.set = {{ {name} = \"value\" }}");
    }
    if let Some(advice) = equivalents::advice(name) {
        return advice;
    }
    let tables = (reader.tables_with)(name);
    if !tables.is_empty() {
        return format!("it is a key of {}", tables.join(" and "));
    }
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("keys of this table: {}", known.join(", ")),
    }
}

/// The value of a key is invalid, which was reported.
pub(super) struct InvalidValue;

impl<T: KeyType> Setting<T> {
    pub(super) fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        Some(Self {
            value: T::read(node, reader)?,
            span: node.span.clone(),
            given: true,
        })
    }
}

/// The type of a key's value.
pub(super) trait KeyType: Sized {
    /// Reads a value. `None` after the error was reported.
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self>;

    /// Describes the type.
    fn type_description() -> TypeDescription;

    /// The value as it is written in a file, to show defaults.
    fn shown(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// Why a string is not a value of its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ValueError {
    /// It is something else: [`StringType::EXPECTED`] says what it should be.
    Unexpected,
    /// What is wrong with it, as a half sentence.
    Because(Cow<'static, str>),
}

impl ValueError {
    /// What another parser says of it.
    pub(super) fn of(error: impl Display) -> Self {
        Self::Because(error.to_string().into())
    }
}

impl From<&'static str> for ValueError {
    fn from(why: &'static str) -> Self {
        Self::Because(why.into())
    }
}

impl From<String> for ValueError {
    fn from(why: String) -> Self {
        Self::Because(why.into())
    }
}

/// The type of a value that is written as a string.
pub(super) trait StringType: Sized {
    /// The expected value, as in "a file name".
    const EXPECTED: &'static str;

    /// Parses it.
    ///
    /// # Errors
    /// It is not a value of this type.
    fn parse(text: &str) -> Result<Self, ValueError>;

    /// All valid strings, if there are few.
    fn choices() -> &'static [&'static str] {
        &[]
    }

    /// The value as it is written in a file.
    fn as_written(&self) -> Option<&str> {
        None
    }
}

/// Parses a string, or reports why it is invalid.
pub(super) fn parse_string<T: StringType>(
    text: &str,
    span: &SourceSpan,
    reader: &mut ConfigReader<'_>,
) -> Option<T> {
    let error = match T::parse(text) {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let shown = shown(text);
    let title = match error {
        ValueError::Unexpected => format!("`{shown}` is not {}", T::EXPECTED),
        ValueError::Because(why) => format!("`{shown}`: {why}"),
    };
    let finding = Finding::error(span, title, format!("expected {}", expected::<T>()));
    let is_path = T::choices().is_empty() || reader.key != "path";
    let of_text = is_path.then(|| value_advice::of_text(&reader.key, &shown));
    let advice = of_text.flatten().or_else(|| {
        let near = nearest_choice(text, T::choices())?;
        Some(format!("did you mean \"{near}\"?"))
    });
    reader.report(match advice {
        Some(advice) => finding.help(advice),
        None => finding,
    });
    None
}

/// The choice that `text` was probably meant to be, whatever its case.
fn nearest_choice<'a>(text: &str, choices: &[&'a str]) -> Option<&'a str> {
    let same = choices.iter().find(|one| one.eq_ignore_ascii_case(text));
    same.copied()
        .or_else(|| nearest(text, choices.iter().copied()))
}

/// A value for a message: on one line, and cut if it is long.
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

/// The expected strings of a `T`.
fn expected<T: StringType>() -> String {
    match T::choices() {
        [] => T::EXPECTED.to_owned(),
        choices => choices
            .iter()
            .map(|word| format!("\"{word}\""))
            .collect::<Vec<_>>()
            .join(" or "),
    }
}

impl<T: StringType> KeyType for T {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let text = node.text(reader, &expected::<T>())?;
        parse_string(&text, &node.span, reader)
    }

    fn type_description() -> TypeDescription {
        let schema = match T::choices() {
            [] => json!({"type": "string"}),
            choices => json!({"enum": choices}),
        };
        TypeDescription::new(expected::<T>(), schema)
    }

    fn shown(&self) -> serde_json::Value {
        self.as_written()
            .map_or(serde_json::Value::Null, Into::into)
    }
}

/// A table with fixed keys.
pub(super) trait ConfigTable: Sized {
    /// Its keys.
    fn names() -> Vec<&'static str>;

    /// Describes the type.
    fn description() -> TableDescription;

    /// Reads its keys and ignores all others.
    fn read_keys(node: &TableNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self>;

    /// Reads the table and reports unknown keys.
    fn read_table(node: &TableNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let table = Self::read_keys(node, reader);
        node.refuse_others(&Self::names(), reader);
        table
    }

    /// The default of a missing table; `None` if it has required keys.
    fn absent(span: &SourceSpan, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let table = DeTable::new();
        Self::read_table(
            &TableNode {
                table: &table,
                span: span.clone(),
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
///         /// What the key does.                      name: Type          Option<Setting<Type>>
///         key: Type = default,                        with a default:     Setting<Type>
///         key [required]: Type,                       must be there:      Setting<Type>
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

        impl $crate::keys::ConfigTable for $Name {
            fn names() -> Vec<&'static str> {
                #[allow(unused_mut, reason = "a table may have no keys of another table")]
                let mut names = vec![$($crate::keys::key_name(stringify!($key))),*];
                $( names.extend(<$Part as $crate::keys::ConfigTable>::names()); )?
                names
            }

            fn description() -> $crate::description::TableDescription {
                #[allow(unused_mut, reason = "a table may have no keys of another table")]
                let mut keys = vec![$(
                    $crate::description::KeyDescription {
                        name: $crate::keys::key_name(stringify!($key)),
                        doc: concat!($($doc, "\n"),*),
                        part: None,
                        required: keys!(@is_required $($required)?),
                        default: keys!(@shown $Type $(= $default)?),
                        kind: <$Type as $crate::keys::KeyType>::type_description(),
                    }
                ),*];
                $(
                    let part = <$Part as $crate::keys::ConfigTable>::description();
                    keys.extend(part.keys.into_iter().map(|key| $crate::description::KeyDescription {
                        part: Some(part.name),
                        ..key
                    }));
                )?
                $crate::description::TableDescription {
                    name: stringify!($Name),
                    doc: concat!($($table_doc, "\n"),*),
                    keys,
                }
            }

            fn read_keys(
                node: &$crate::keys::TableNode<'_>,
                reader: &mut $crate::keys::ConfigReader<'_>,
            ) -> Option<Self> {
                $(
                    let $key = node.key::<$Type>(
                        $crate::keys::key_name(stringify!($key)),
                        reader,
                    );
                )*
                $( let $part = <$Part as $crate::keys::ConfigTable>::read_keys(node, reader); )?
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

        impl $crate::keys::KeyType for $Name {
            fn read(
                node: &$crate::keys::ValueNode<'_>,
                reader: &mut $crate::keys::ConfigReader<'_>,
            ) -> Option<Self> {
                let toml::de::DeValue::Table(table) = node.value else {
                    reader.wrong_type(node, "a table");
                    return None;
                };
                <Self as $crate::keys::ConfigTable>::read_table(
                    &$crate::keys::TableNode { table, span: node.span.clone() },
                    reader,
                )
            }

            fn type_description() -> $crate::description::TypeDescription {
                let description = <Self as $crate::keys::ConfigTable>::description();
                $crate::description::TypeDescription {
                    expected: "a table".to_owned(),
                    schema: $crate::table_schema::of_table(&description),
                    table: Some(Box::new(description)),
                    repeated: false,
                    named: false,
                }
            }
        }
    };

    (@field [required] $Type:ty) => { $crate::source::Setting<$Type> };
    (@field $Type:ty = $default:expr) => { $crate::source::Setting<$Type> };
    (@field $Type:ty) => { Option<$crate::source::Setting<$Type>> };

    (@is_required required) => { true };
    (@is_required) => { false };

    (@shown $Type:ty = $default:expr) => {
        Some($crate::keys::KeyType::shown(&{ let value: $Type = $default; value }))
    };
    (@shown $Type:ty) => { None };

    (@finish $node:ident $reader:ident $key:ident [required] $Type:ty) => {{
        if let Ok(None) = $key {
            $node.missing($crate::keys::key_name(stringify!($key)), $reader);
        }
        $key.ok().flatten()
    }};
    (@finish $node:ident $reader:ident $key:ident $Type:ty = $default:expr) => {
        $key.ok().flatten().unwrap_or_else(|| $crate::source::Setting {
            value: $default,
            span: $node.span.clone(),
            given: false,
        })
    };
    (@finish $node:ident $reader:ident $key:ident $Type:ty) => { $key.ok().flatten() };

    (@unwrap $key:ident [required]) => { $key? };
    (@unwrap $key:ident) => { $key };
}

/// Defines a type with a few valid strings.
macro_rules! choices {
    (
        $(#[doc = $doc:literal])*
        $vis:vis $Name:ident: $expected:literal {
            $( $(#[doc = $variant_doc:literal])* $Variant:ident = $word:literal, )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $Name {
            $( $(#[doc = $variant_doc])* $Variant, )*
        }

        impl $crate::keys::StringType for $Name {
            const EXPECTED: &'static str = $expected;

            fn parse(text: &str) -> Result<Self, $crate::keys::ValueError> {
                match text {
                    $( $word => Ok(Self::$Variant), )*
                    _ => Err($crate::keys::ValueError::Unexpected),
                }
            }

            fn choices() -> &'static [&'static str] {
                &[$($word),*]
            }

            fn as_written(&self) -> Option<&str> {
                Some(match self { $( Self::$Variant => $word, )* })
            }
        }
    };
}

pub(super) use {choices, keys};
