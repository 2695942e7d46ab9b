//! Text in HTML (HTML Living Standard section 13.1.4): the characters that end a text or the value of an attribute.

/// The text with references for the characters that have a meaning in HTML, for an element or a quoted attribute.
pub fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_neither_an_element_nor_an_attribute() {
        let escaped = escape_html("<a href=\"/?a&b\" title='ü'>");
        assert_eq!(
            escaped,
            "&lt;a href=&quot;/?a&amp;b&quot; title=&#39;ü&#39;&gt;"
        );
    }
}
