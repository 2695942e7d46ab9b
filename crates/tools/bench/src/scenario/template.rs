//! Text with values that change from request to request: `${counter}`, `${random:1..100}`, captured values, columns of rows.

use std::fmt::{self, Write};

use apus_http::percent;

/// Text with places for values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoadTemplate {
    source: String,
    parts: Vec<LoadTemplatePart>,
}

#[derive(Clone, Debug, PartialEq)]
enum LoadTemplatePart {
    Text(String),
    Value(TemplateValue),
}

/// A value of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateValue {
    /// A number that no other request of the load gets: 1, 2 and so on.
    Counter,
    /// A number between two others, which may be it, too.
    Number(u64, u64),
    /// So many letters and digits.
    Letters(usize),
    /// A captured value.
    Variable(usize),
    /// A column of the current row of a source.
    Column(usize, usize),
}

/// How values are written, so that they cannot change the meaning of the text around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueEscape {
    /// As they are.
    None,
    /// In a request target or a form: everything but unreserved characters by percent-encoding (RFC 3986 section 2.1).
    Percent,
    /// In a string of JSON (RFC 8259 section 7).
    Json,
    /// In a field value: control characters are left out.
    Field,
}

impl LoadTemplate {
    /// Parses a text. `resolve` knows captured values and columns by their names.
    pub(crate) fn parse(
        source: &str,
        resolve: &dyn Fn(&str) -> Option<TemplateValue>,
    ) -> Result<Self, InvalidLoadTemplate> {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut rest = source;
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(before) = before.strip_suffix('$') {
                text += before;
                text += "${";
                rest = after;
                continue;
            }
            let (name, after) = after
                .split_once('}')
                .ok_or_else(|| InvalidLoadTemplate::Unclosed(source.to_owned()))?;
            text += before;
            if !text.is_empty() {
                parts.push(LoadTemplatePart::Text(std::mem::take(&mut text)));
            }
            parts.push(LoadTemplatePart::Value(value(name.trim(), resolve)?));
            rest = after;
        }
        text += rest;
        if !text.is_empty() {
            parts.push(LoadTemplatePart::Text(text));
        }
        Ok(Self {
            source: source.to_owned(),
            parts,
        })
    }

    /// The text as it was written.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Writes the text with its values.
    pub(crate) fn render(
        &self,
        out: &mut String,
        escape: ValueEscape,
        value: &mut dyn FnMut(TemplateValue, &mut String),
    ) {
        for part in &self.parts {
            match part {
                LoadTemplatePart::Text(text) => out.push_str(text),
                LoadTemplatePart::Value(name) if escape == ValueEscape::None => value(*name, out),
                LoadTemplatePart::Value(name) => {
                    let mut plain = String::new();
                    value(*name, &mut plain);
                    write_escaped(&plain, escape, out);
                }
            }
        }
    }
}

fn value(
    name: &str,
    resolve: &dyn Fn(&str) -> Option<TemplateValue>,
) -> Result<TemplateValue, InvalidLoadTemplate> {
    if name == "counter" {
        return Ok(TemplateValue::Counter);
    }
    if let Some(range) = name.strip_prefix("random:") {
        let wrong = || InvalidLoadTemplate::Range(name.to_owned());
        let (least, most) = range.split_once("..").ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let (least, most) = (number(least)?, number(most)?);
        return if least <= most {
            Ok(TemplateValue::Number(least, most))
        } else {
            Err(wrong())
        };
    }
    if let Some(length) = name.strip_prefix("letters:") {
        return match length.parse() {
            Ok(length @ 1..=65_536) => Ok(TemplateValue::Letters(length)),
            _ => Err(InvalidLoadTemplate::Length(name.to_owned())),
        };
    }
    resolve(name).ok_or_else(|| InvalidLoadTemplate::Unknown(name.to_owned()))
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InvalidLoadTemplate {
    /// The name of a value in this text does not end.
    Unclosed(String),
    /// These are no two numbers in their order.
    Range(String),
    /// This is no number of letters.
    Length(String),
    /// No value has this name.
    Unknown(String),
}

impl fmt::Display for InvalidLoadTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclosed(source) => write!(f, "`${{` in `{source}` has no `}}`"),
            Self::Range(name) => {
                write!(f, "`${{{name}}}`: expected a range such as random:1..100")
            }
            Self::Length(name) => write!(
                f,
                "`${{{name}}}`: expected a length from 1 to 65536, such as letters:12"
            ),
            Self::Unknown(name) => write!(
                f,
                "`${{{name}}}` is unknown: it is neither counter, random:1..9 or letters:9, nor captured by an earlier step, nor a \
                 column such as users.name; `$${{` writes `${{`"
            ),
        }
    }
}

/// Appends a value.
pub(super) fn write_escaped(value: &str, escape: ValueEscape, out: &mut String) {
    match escape {
        ValueEscape::None => out.push_str(value),
        ValueEscape::Percent => percent::encode_part_onto(out, value.as_bytes()),
        ValueEscape::Json => {
            for character in value.chars() {
                match character {
                    '"' | '\\' => {
                        out.push('\\');
                        out.push(character);
                    }
                    // Writing to a string never fails.
                    '\0'..='\x1f' => drop(write!(out, "\\u{:04x}", u32::from(character))),
                    _ => out.push(character),
                }
            }
        }
        ValueEscape::Field => out.extend(value.chars().filter(|one| !one.is_control())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(source: &str, escape: ValueEscape) -> Result<String, InvalidLoadTemplate> {
        let resolve = |name: &str| match name {
            "token" => Some(TemplateValue::Variable(0)),
            "users.name" => Some(TemplateValue::Column(0, 1)),
            _ => None,
        };
        let template = LoadTemplate::parse(source, &resolve)?;
        assert_eq!(template.source(), source);
        let mut out = String::new();
        template.render(&mut out, escape, &mut |value, out| match value {
            TemplateValue::Counter => out.push('7'),
            TemplateValue::Number(least, most) => *out += &format!("{least}-{most}"),
            TemplateValue::Letters(length) => *out += &"x".repeat(length),
            TemplateValue::Variable(_) => out.push_str("a b\"\\\n&"),
            TemplateValue::Column(source, column) => *out += &format!("{source}/{column}"),
        });
        Ok(out)
    }

    #[test]
    fn values_are_put_into_the_text() {
        for (source, expected) in [
            ("", ""),
            ("/plain", "/plain"),
            (
                "/${counter}?r=${random:1..9}&x=${ letters:3 }",
                "/7?r=1-9&x=xxx",
            ),
            ("${users.name}", "0/1"),
            ("$${counter} $ {} ${counter}", "${counter} $ {} 7"),
        ] {
            let text = rendered(source, ValueEscape::None).unwrap();
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn values_cannot_change_the_text_around_them() {
        for (escape, expected) in [
            (ValueEscape::Percent, "/a?b=a%20b%22%5C%0A%26"),
            (ValueEscape::Json, "/a?b=a b\\\"\\\\\\u000a&"),
            (ValueEscape::Field, "/a?b=a b\"\\&"),
        ] {
            assert_eq!(rendered("/a?b=${token}", escape).unwrap(), expected);
        }
    }

    #[test]
    fn unknown_values_are_errors() {
        for wrong in [
            "${",
            "${name}",
            "${random:9..1}",
            "${random:1}",
            "${letters:0}",
            "${letters:x}",
            "${}",
        ] {
            assert!(rendered(wrong, ValueEscape::None).is_err(), "{wrong}");
        }
    }
}
