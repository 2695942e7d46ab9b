//! Which requests a reader wants to see: `status >= 500 and path starts_with "/api/"`.

use serde_json::Value;

/// The fields of a request that can be compared.
const FIELDS: [&str; 14] = [
    "bytes_sent",
    "cache",
    "client",
    "handler",
    "host",
    "id",
    "location",
    "method",
    "outcome",
    "path",
    "protocol",
    "seconds",
    "site",
    "status",
];

/// The most comparisons of a filter.
const MAX_COMPARISONS: usize = 16;

/// Comparisons that all have to hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RequestFilter(Vec<FieldComparison>);

#[derive(Clone, Debug, PartialEq)]
struct FieldComparison {
    field: &'static str,
    operator: FilterOperator,
    text: String,
    number: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterOperator {
    Equal,
    Different,
    Least,
    Most,
    More,
    Less,
    StartsWith,
}

impl FilterOperator {
    const ALL: [(&'static str, Self); 7] = [
        ("==", Self::Equal),
        ("!=", Self::Different),
        (">=", Self::Least),
        ("<=", Self::Most),
        (">", Self::More),
        ("<", Self::Less),
        ("starts_with", Self::StartsWith),
    ];
}

impl RequestFilter {
    /// Reads a filter; an empty one wants every request.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut comparisons = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (comparison, after) = FieldComparison::parse(rest)?;
            comparisons.push(comparison);
            if comparisons.len() > MAX_COMPARISONS {
                return Err(format!(
                    "a filter has at most {MAX_COMPARISONS} comparisons"
                ));
            }
            let after = after.trim_start();
            rest = match after.strip_prefix("and ") {
                Some(next) if !next.trim().is_empty() => next.trim_start(),
                None if after.is_empty() => after,
                _ => return Err("comparisons are joined by `and`".to_owned()),
            };
        }
        Ok(Self(comparisons))
    }

    /// Whether a request, as a line of the tail, is wanted.
    pub(crate) fn wants(&self, line: &Value) -> bool {
        self.0.iter().all(|comparison| {
            let value = line.get(comparison.field).unwrap_or(&Value::Null);
            comparison.holds(value)
        })
    }
}

impl FieldComparison {
    /// The first comparison of a text, and what follows it.
    fn parse(text: &str) -> Result<(Self, &str), String> {
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let (name, rest) = text.split_at(end.unwrap_or(text.len()));
        let field = FIELDS.into_iter().find(|field| *field == name);
        let field = field.ok_or_else(|| {
            let name = name.escape_debug();
            format!(
                "`{name}` is no field: expected one of {}",
                FIELDS.join(", ")
            )
        })?;
        let rest = rest.trim_start();
        let operator = FilterOperator::ALL
            .into_iter()
            .find_map(|(written, operator)| Some((operator, rest.strip_prefix(written)?)));
        let (operator, rest) = operator.ok_or_else(|| {
            format!("after `{field}`, expected ==, !=, >=, <=, >, < or starts_with")
        })?;
        let rest = rest.trim_start();
        let (value, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted
                .split_once('"')
                .ok_or("a text has no quotation mark at its end")?,
            None => {
                let end = rest.find(char::is_whitespace);
                rest.split_at(end.unwrap_or(rest.len()))
            }
        };
        if value.is_empty() && !rest.starts_with('"') {
            return Err(format!("nothing to compare `{field}` with"));
        }
        let comparison = Self {
            field,
            operator,
            text: value.to_owned(),
            number: value.parse().ok(),
        };
        Ok((comparison, after))
    }

    fn holds(&self, value: &Value) -> bool {
        use FilterOperator::{Different, Equal, Least, Less, More, Most, StartsWith};
        if let (Some(value), Some(number)) = (value.as_f64(), self.number) {
            return match self.operator {
                Equal => (value - number).abs() < 1e-9,
                Different => (value - number).abs() >= 1e-9,
                Least => value >= number,
                Most => value <= number,
                More => value > number,
                Less => value < number,
                StartsWith => value.to_string().starts_with(&self.text),
            };
        }
        let text = value.as_str();
        match self.operator {
            Equal => text == Some(&*self.text),
            Different => text != Some(&*self.text),
            StartsWith => text.is_some_and(|text| text.starts_with(&self.text)),
            Least | Most | More | Less => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_are_compared_by_their_fields() {
        let line = json!({ "status": 502, "path": "/api/a b", "site": "shop", "seconds": 0.25, "cache": null });
        for (filter, expected) in [
            ("", true),
            ("status >= 500", true),
            ("status>=500 and seconds > 0.2", true),
            ("status < 500", false),
            ("status starts_with 5", true),
            ("path starts_with \"/api/\" and site == shop", true),
            ("path == \"/api/a b\"", true),
            ("site != shop", false),
            ("cache == hit", false),
            ("cache != hit", true),
            ("cache >= 1", false),
            ("site > a", false),
        ] {
            let parsed = RequestFilter::parse(filter).unwrap();
            assert_eq!(parsed.wants(&line), expected, "{filter}");
        }
    }

    #[test]
    fn mistakes_are_told() {
        for (filter, expected) in [
            ("cookie == a", "`cookie` is no field"),
            ("status", "expected =="),
            ("status = 500", "expected =="),
            ("status ==", "nothing to compare"),
            ("path == \"a", "quotation mark"),
            ("status == 1 or status == 2", "joined by `and`"),
            ("status == 1 and", "joined by `and`"),
            ("é == 1", "is no field"),
        ] {
            let error = RequestFilter::parse(filter).unwrap_err();
            assert!(error.contains(expected), "{filter}: {error}");
        }
        let many = vec!["status == 1"; 17].join(" and ");
        assert!(RequestFilter::parse(&many).is_err());
    }
}
