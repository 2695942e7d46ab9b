//! Expansion of `${NAME}` and `${NAME:-default}` in the strings of a configuration.

/// A reference that cannot be expanded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExpandError {
    /// The variable is not set, and the reference has no default.
    NotSet(String),
    /// The reference is not closed, or what stands in it is no variable name.
    NotAReference(String),
}

/// `text` with its references expanded; `$${` stands for a plain `${`.
pub(super) fn expand(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String, ExpandError> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, reference) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            filled.push_str(before);
            filled.push_str("${");
            rest = reference.get(2..).unwrap_or("");
            continue;
        }
        filled.push_str(before);
        let not_a_reference = || ExpandError::NotAReference(reference.to_owned());
        let (inner, after) = reference
            .get(2..)
            .and_then(|inner| inner.split_once('}'))
            .ok_or_else(not_a_reference)?;
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        if !is_name(name) {
            return Err(not_a_reference());
        }
        match (variable(name).filter(|value| !value.is_empty()), default) {
            (Some(value), _) => filled.push_str(&value),
            (None, Some(default)) => filled.push_str(default),
            (None, None) => match variable(name) {
                Some(empty) => filled.push_str(&empty),
                None => return Err(ExpandError::NotSet(name.to_owned())),
            },
        }
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str) -> Result<String, ExpandError> {
        expand(text, &|name| match name {
            "HOST" => Some("example.com".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        })
    }

    #[test]
    fn fills_in_variables_and_defaults() {
        for (text, filled) in [
            ("", ""),
            ("plain $1 $x {y}", "plain $1 $x {y}"),
            ("www.${HOST}:80", "www.example.com:80"),
            ("${HOST:-other}", "example.com"),
            ("${NONE:-other}/${NONE:-}", "other/"),
            ("${EMPTY}x${EMPTY:-default}", "xdefault"),
            ("$${HOST}", "${HOST}"),
        ] {
            assert_eq!(fill(text).as_deref(), Ok(filled), "{text:?}");
        }
    }

    #[test]
    fn refuses_what_it_cannot_fill_in() {
        assert_eq!(fill("a${NONE}"), Err(ExpandError::NotSet("NONE".into())));
        for text in ["${", "${HOST", "${}", "${1A}", "${a b}"] {
            assert_eq!(
                fill(text),
                Err(ExpandError::NotAReference(text.into())),
                "{text:?}"
            );
        }
    }
}
