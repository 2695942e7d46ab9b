//! The attributes of HTML tags (HTML standard section 13.1.2) that a test needs to find a form field.

/// The value of the input field with this name.
pub(super) fn field_value<'p>(page: &'p str, name: &str) -> Option<&'p str> {
    let mut rest = page;
    while let Some((_, tag)) = rest.split_once('<') {
        let name_len = tag
            .find(|character: char| !character.is_ascii_alphanumeric())
            .unwrap_or(tag.len());
        let (element, attributes) = tag.split_at(name_len);
        if !element.eq_ignore_ascii_case("input") {
            rest = tag;
            continue;
        }
        let (mut is_wanted, mut value) = (false, None);
        rest = attributes;
        while let Some((attribute, text, after)) = next_attribute(rest) {
            is_wanted |= attribute.eq_ignore_ascii_case("name") && text == name;
            if attribute.eq_ignore_ascii_case("value") {
                value = Some(text);
            }
            rest = after;
        }
        if is_wanted && value.is_some() {
            return value;
        }
    }
    None
}

/// The name and the value of the first attribute in a tag, and the rest; `None` at the end of the tag.
fn next_attribute(tag: &str) -> Option<(&str, &str, &str)> {
    let is_between = |character: char| character.is_ascii_whitespace() || character == '/';
    let tag = tag.trim_start_matches(is_between);
    if tag.is_empty() || tag.starts_with('>') {
        return None;
    }
    let is_end = |character: char| is_between(character) || character == '>';
    let len = tag
        .find(|character| character == '=' || is_end(character))
        .unwrap_or(tag.len());
    let (name, rest) = tag.split_at(len);
    let Some(rest) = rest.trim_start().strip_prefix('=') else {
        return Some((name, "", rest));
    };
    let rest = rest.trim_start();
    let quote = rest
        .chars()
        .next()
        .filter(|first| matches!(first, '"' | '\''));
    match quote {
        Some(quote) => {
            let (value, after) = rest.get(1..)?.split_once(quote)?;
            Some((name, value, after))
        }
        None => {
            let is_end = |character: char| character.is_ascii_whitespace() || character == '>';
            let (value, after) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
            Some((name, value, after))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_any_order_and_quotes() {
        for page in [
            r#"<form><input type="hidden" name="csrf_token" value="t-1_"></form>"#,
            r#"<input value="t-1_" name="csrf_token" type="hidden">"#,
            "<input value='t-1_' name='csrf_token'/>",
            "<INPUT NAME=csrf_token VALUE=t-1_ hidden>",
            "<input name = csrf_token\n value = \"t-1_\" disabled />",
            r#"<input data-x="a > b" name="csrf_token" value="t-1_">"#,
            r#"<input name="x" value="csrf_token"><input name=csrf_token value=t-1_>"#,
        ] {
            assert_eq!(field_value(page, "csrf_token"), Some("t-1_"), "{page}");
        }
        for page in [
            "",
            "<input",
            "<input name=csrf_token>",
            "<input name=csrf_token value=\"x",
            "<meta name=csrf_token value=x>",
            "<input value=csrf_token name=other>",
            "csrf_token",
        ] {
            assert_eq!(field_value(page, "csrf_token"), None, "{page}");
        }
    }
}
