//! The claims of a token (RFC 7519 section 4), by their names.

use serde_json::Value;

/// Calls `each` with the values of a claim as text, until it returns `true`; returns whether it did. A dot leads into an object, unless
/// a claim has the name with it.
pub(crate) fn any_value(claims: &str, name: &str, each: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    // A token is read only when a condition asks, and it was verified to be JSON.
    let Ok(claims) = serde_json::from_str::<Value>(claims) else {
        return false;
    };
    find(&claims, name).is_some_and(|value| any_scalar(value, each))
}

fn find<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    if let Some(value) = object.get(name) {
        return Some(value);
    }
    name.match_indices('.').find_map(|(at, _)| {
        let inner = object.get(name.get(..at)?)?;
        find(inner, name.get(at.checked_add(1)?..)?)
    })
}

fn any_scalar(value: &Value, each: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    match value {
        Value::String(text) => each(text.as_bytes()),
        Value::Number(number) => each(number.to_string().as_bytes()),
        Value::Bool(flag) => each(flag.to_string().as_bytes()),
        Value::Array(values) => values
            .iter()
            .filter(|value| !value.is_array())
            .any(|value| any_scalar(value, each)),
        Value::Null | Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_texts_numbers_and_each_element_of_arrays() {
        let claims = r#"{"sub":"ada","level":3,"admin":true,"groups":["a","b",7,["c"],{"d":1}],
            "realm":{"roles":["x"],"a.b":"y"},"realm.name":"z","none":null}"#;
        for (name, expected) in [
            ("sub", "ada"),
            ("level", "3"),
            ("admin", "true"),
            ("groups", "a b 7"),
            ("realm", ""),
            ("realm.roles", "x"),
            ("realm.a.b", "y"),
            ("realm.name", "z"),
            ("none", ""),
            ("missing", ""),
            ("sub.x", ""),
            (".", ""),
        ] {
            let mut found = Vec::new();
            any_value(claims, name, &mut |value| {
                found.push(String::from_utf8(value.to_vec()).unwrap());
                false
            });
            assert_eq!(found.join(" "), expected, "{name}");
        }
        assert!(!any_value("[", "sub", &mut |_| true));
    }
}
