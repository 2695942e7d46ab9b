//! Checks of the path of a route at compile time.

use syn::{Error, LitStr};

/// The path of a route: `/users/{id}`, `/users/{id:[0-9]+}`, `/files/{*rest}`.
pub(crate) struct RoutePath {
    pub(crate) literal: LitStr,
    /// The names of its parameters, in order.
    pub(crate) parameters: Vec<String>,
}

impl RoutePath {
    /// Parses a path.
    ///
    /// # Errors
    /// The path is invalid; the message explains why.
    pub(crate) fn read(literal: LitStr) -> syn::Result<Self> {
        match parameters(&literal.value()) {
            Ok(parameters) => Ok(Self {
                literal,
                parameters,
            }),
            Err(message) => Err(Error::new(literal.span(), message)),
        }
    }
}

fn parameters(path: &str) -> Result<Vec<String>, String> {
    if !path.starts_with('/') {
        return Err(format!("a path starts with a slash: \"/{path}\""));
    }
    let mut parameters: Vec<String> = Vec::new();
    let mut rest = path;
    let mut literal = String::new();
    while let Some(character) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("{{").or_else(|| rest.strip_prefix("}}")) {
            rest = after;
            continue;
        }
        if character == '}' {
            return Err("a `}` without its `{`; write `}}` for a literal brace".into());
        }
        if character != '{' {
            literal.push(character);
            rest = rest.get(character.len_utf8()..).unwrap_or_default();
            continue;
        }
        let inside = inside(rest).ok_or("a parameter is not closed: `{name}`")?;
        rest = rest.get(inside.len() + 2..).unwrap_or_default();
        let name = inside.split(':').next().unwrap_or_default();
        let plain = name.strip_prefix('*').unwrap_or(name);
        if plain.is_empty() {
            return Err("a parameter has a name: `{id}`, or `{*rest}` for all that is left".into());
        }
        let is_name = |text: &str| {
            text.chars()
                .all(|character| character.is_alphanumeric() || character == '_')
        };
        if !is_name(plain) {
            return Err(format!(
                "`{plain}` is no name of a parameter; a name consists of letters, digits and `_`"
            ));
        }
        if parameters.iter().any(|other| other == plain) {
            return Err(format!("the path has two parameters named `{plain}`"));
        }
        if plain.len() < name.len() && !rest.is_empty() {
            return Err(format!(
                "`{{{name}}}` takes all that is left of a path and can only be its end"
            ));
        }
        parameters.push(plain.to_owned());
        literal.push('x');
    }
    literal_error(&literal).map_or(Ok(parameters), Err)
}

/// The text between the opening brace at the start of `text` and its closing brace.
fn inside(text: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let mut is_escaped = false;
    for (index, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return text.get(1..index);
        }
    }
    None
}

/// The fault of the literal parts of a path, if there is one.
fn literal_error(literal: &str) -> Option<String> {
    for segment in literal.split('/').skip(1) {
        if let Some(name) = segment.strip_prefix(':').or(segment.strip_prefix('*'))
            && !name.is_empty()
        {
            return Some(format!(
                "a parameter is written `{{{name}}}` here, or `{{*{name}}}` for all that is left"
            ));
        }
        if let Some(name) = segment
            .strip_prefix('<')
            .and_then(|segment| segment.strip_suffix('>'))
        {
            let name = name.split(':').next().unwrap_or(name);
            return Some(format!("a parameter is written `{{{name}}}` here"));
        }
        if matches!(segment, "." | "..") {
            return Some("paths are matched without segments of dots".into());
        }
    }
    if literal.contains("//") {
        return Some("paths are matched without empty segments: one slash is enough".into());
    }
    if literal.contains(['?', '#']) {
        return Some("a route is a path only; take the query as `Query<T>`".into());
    }
    if literal.contains(char::is_whitespace) {
        return Some("a path has no white space".into());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_in_order() {
        assert_eq!(parameters("/").unwrap(), [""; 0]);
        assert_eq!(parameters("/a/{b}/c-{d}").unwrap(), ["b", "d"]);
        assert_eq!(
            parameters("/{id:[0-9]{2,3}}/{*rest}").unwrap(),
            ["id", "rest"]
        );
        assert_eq!(parameters("/{{a}}").unwrap(), [""; 0]);
    }

    #[test]
    fn the_error_of_an_invalid_path_shows_the_valid_form() {
        for (path, part) in [
            ("users", "starts with a slash"),
            ("/users/:id", "`{id}`"),
            ("/users/<id>", "`{id}`"),
            ("/users/<id:int>", "`{id}`"),
            ("/users/{id", "not closed"),
            ("/users/id}", "without its `{`"),
            ("/users/{}", "has a name"),
            ("/users/{a b}", "no name"),
            ("/{a}/{a}", "two parameters"),
            ("/{*a}/b", "only be its end"),
            ("//a", "one slash"),
            ("/a?b", "Query<T>"),
            ("/a/../b", "dots"),
            ("/a b", "white space"),
        ] {
            let message = parameters(path).unwrap_err();
            assert!(message.contains(part), "{path}: {message}");
        }
    }
}
