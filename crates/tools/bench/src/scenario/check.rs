//! What a response of a scenario has to be, and what is taken from it.

use std::fmt;
use std::ops::RangeInclusive;

use apus_http::Headers;
use regex::bytes::Regex;
use serde_json::Value;

use crate::LoadFailure;

/// A response of which a step looks at some parts.
pub(super) struct CheckedResponse<'a> {
    pub(super) status: u16,
    pub(super) headers: &'a Headers,
    pub(super) body: &'a [u8],
    pub(super) body_bytes: u64,
    /// The body as JSON, once it was needed.
    json: Option<Result<Value, serde_json::Error>>,
}

impl<'a> CheckedResponse<'a> {
    pub(super) fn new(status: u16, headers: &'a Headers, body: (&'a [u8], u64)) -> Self {
        Self {
            status,
            headers,
            body: body.0,
            body_bytes: body.1,
            json: None,
        }
    }

    /// The value at a pointer (RFC 6901).
    fn json<'b>(&'b mut self, pointer: &'b str) -> Result<&'b Value, MissingValue<'b>> {
        let body = self.body;
        let parsed = self
            .json
            .get_or_insert_with(|| serde_json::from_slice(body));
        match parsed {
            Ok(value) => value.pointer(pointer).ok_or(MissingValue::Pointer(pointer)),
            Err(error) => Err(MissingValue::NoJson(error)),
        }
    }
}

/// Why a response lacks a value.
#[derive(Debug)]
pub(super) enum MissingValue<'a> {
    /// It has no field with this name.
    Field(&'a str),
    NoJson(&'a serde_json::Error),
    /// Its body has nothing at this pointer (RFC 6901).
    Pointer(&'a str),
    /// Its body has no match of this expression.
    Pattern(&'a Regex),
}

impl fmt::Display for MissingValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, "no {name}"),
            Self::NoJson(error) => write!(f, "the body is no JSON: {error}"),
            Self::Pointer(pointer) => write!(f, "the body has no {pointer}"),
            Self::Pattern(pattern) => write!(f, "the body has no match of {pattern}"),
        }
    }
}

/// What a header field has to be.
#[derive(Debug)]
pub(super) enum ExpectedField {
    /// It exists.
    Any,
    Value(String),
    Pattern(Regex),
}

impl ExpectedField {
    fn is_met(&self, value: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Value(expected) => value == expected,
            Self::Pattern(pattern) => pattern.is_match(value.as_bytes()),
        }
    }
}

impl fmt::Display for ExpectedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any value"),
            Self::Value(value) => f.write_str(value),
            Self::Pattern(pattern) => write!(f, "a match of {pattern}"),
        }
    }
}

/// A condition of a response.
#[derive(Debug)]
pub(super) enum ResponseCheck {
    Status(RangeInclusive<u16>),
    Header(String, ExpectedField),
    Length(u64),
    Contains(String),
    /// The value at a pointer (RFC 6901).
    Json(String, Value),
}

impl ResponseCheck {
    pub(super) fn reads_body(&self) -> bool {
        matches!(self, Self::Contains(_) | Self::Json(..))
    }

    /// What is wrong, if anything.
    pub(super) fn mistake(
        &self,
        response: &mut CheckedResponse<'_>,
    ) -> Option<(LoadFailure, String)> {
        match self {
            Self::Status(expected) => (!expected.contains(&response.status)).then(|| {
                let (first, last) = (expected.start(), expected.end());
                let expected = if first == last {
                    first.to_string()
                } else {
                    format!("{first} to {last}")
                };
                let cause = format!("status {} instead of {expected}", response.status);
                (LoadFailure::WrongStatus, cause)
            }),
            Self::Header(name, expected) => {
                let cause = match response.headers.get_str(name) {
                    Some(found) if expected.is_met(found) => return None,
                    Some(found) => format!("{name}: {found} instead of {expected}"),
                    None => format!("no {name}"),
                };
                Some((LoadFailure::WrongHeader, cause))
            }
            Self::Length(expected) => (*expected != response.body_bytes).then(|| {
                (
                    LoadFailure::WrongLength,
                    format!("{} bytes instead of {expected}", response.body_bytes),
                )
            }),
            Self::Contains(part) => {
                let found = response
                    .body
                    .windows(part.len().max(1))
                    .any(|window| window == part.as_bytes());
                (!found && !part.is_empty()).then(|| {
                    (
                        LoadFailure::WrongBody,
                        format!("the body does not contain `{part}`"),
                    )
                })
            }
            Self::Json(pointer, expected) => {
                let found = response.json(pointer);
                match found {
                    Ok(found) if found == expected => None,
                    Ok(found) => Some((
                        LoadFailure::WrongValue,
                        format!("{pointer} is {found} instead of {expected}"),
                    )),
                    Err(missing) => Some((LoadFailure::WrongValue, missing.to_string())),
                }
            }
        }
    }
}

/// Where a value of a response is.
#[derive(Debug)]
pub(super) enum ResponseCapture {
    Header(String),
    /// The value at a pointer (RFC 6901).
    Json(String),
    /// The first group of an expression in the body.
    Pattern(Regex),
}

impl ResponseCapture {
    pub(super) fn reads_body(&self) -> bool {
        !matches!(self, Self::Header(_))
    }

    /// The value, or why there is none.
    pub(super) fn take<'a>(
        &'a self,
        response: &'a mut CheckedResponse<'_>,
    ) -> Result<String, MissingValue<'a>> {
        match self {
            Self::Header(name) => response
                .headers
                .get_str(name)
                .map(str::to_owned)
                .ok_or(MissingValue::Field(name)),
            Self::Json(pointer) => match response.json(pointer)? {
                Value::String(text) => Ok(text.clone()),
                value => Ok(value.to_string()),
            },
            Self::Pattern(pattern) => pattern
                .captures(response.body)
                .and_then(|found| found.get(1).or(found.get(0)))
                .map(|group| String::from_utf8_lossy(group.as_bytes()).into_owned())
                .ok_or(MissingValue::Pattern(pattern)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers() -> Headers {
        let mut headers = Headers::new();
        headers.push(b"location", b"/home");
        headers
    }

    fn mistake(check: &ResponseCheck, body: &str) -> Option<LoadFailure> {
        let headers = headers();
        let bytes = body.len() as u64;
        let mut response = CheckedResponse::new(200, &headers, (body.as_bytes(), bytes));
        check.mistake(&mut response).map(|(kind, _)| kind)
    }

    #[test]
    fn wrong_parts_of_a_response_have_names() {
        let json = |pointer: &str, value: Value| ResponseCheck::Json(pointer.to_owned(), value);
        let header = |value: Option<&str>| {
            let value = value.map(str::to_owned);
            let expected = value.map_or(ExpectedField::Any, ExpectedField::Value);
            ResponseCheck::Header("Location".to_owned(), expected)
        };
        let pattern = |text: &str| {
            let pattern = ExpectedField::Pattern(Regex::new(text).unwrap());
            ResponseCheck::Header("Location".to_owned(), pattern)
        };
        for (check, expected) in [
            (ResponseCheck::Status(200..=299), None),
            (
                ResponseCheck::Status(201..=201),
                Some(LoadFailure::WrongStatus),
            ),
            (header(None), None),
            (header(Some("/home")), None),
            (header(Some("/")), Some(LoadFailure::WrongHeader)),
            (
                ResponseCheck::Header("x".to_owned(), ExpectedField::Any),
                Some(LoadFailure::WrongHeader),
            ),
            (pattern("^/h[a-z]+(; charset=utf-8)?$"), None),
            (pattern("^home"), Some(LoadFailure::WrongHeader)),
            (ResponseCheck::Length(24), None),
            (ResponseCheck::Length(23), Some(LoadFailure::WrongLength)),
            (ResponseCheck::Contains("\"id\"".to_owned()), None),
            (
                ResponseCheck::Contains("\"ID\"".to_owned()),
                Some(LoadFailure::WrongBody),
            ),
            (json("/user/id", 7.into()), None),
            (json("/user/id", "7".into()), Some(LoadFailure::WrongValue)),
            (json("/user/no", 7.into()), Some(LoadFailure::WrongValue)),
        ] {
            let found = mistake(&check, r#"{"user":{"id":7},"a":[]}"#);
            assert_eq!(found, expected, "{check:?}");
        }
        let found = mistake(&json("/a", 1.into()), "<html>");
        assert_eq!(found, Some(LoadFailure::WrongValue));
    }

    #[test]
    fn a_mistake_says_what_was_expected_and_what_came() {
        let headers = headers();
        let mut response = CheckedResponse::new(404, &headers, (b"", 0));
        let location =
            |expected: ExpectedField| ResponseCheck::Header("location".to_owned(), expected);
        for (check, expected) in [
            (
                ResponseCheck::Status(200..=200),
                "status 404 instead of 200",
            ),
            (
                ResponseCheck::Status(200..=399),
                "status 404 instead of 200 to 399",
            ),
            (
                location(ExpectedField::Value("/".to_owned())),
                "location: /home instead of /",
            ),
            (
                location(ExpectedField::Pattern(Regex::new("^x").unwrap())),
                "location: /home instead of a match of ^x",
            ),
            (
                ResponseCheck::Header("etag".to_owned(), ExpectedField::Any),
                "no etag",
            ),
            (ResponseCheck::Length(5), "0 bytes instead of 5"),
        ] {
            let (_, cause) = check.mistake(&mut response).unwrap();
            assert_eq!(cause, expected);
        }
    }

    #[test]
    fn values_are_taken_from_fields_json_and_text() {
        let headers = headers();
        let body = br#"{"id":7,"name":"x","page":"<input name=csrf value='abc'>"}"#;
        let mut response = CheckedResponse::new(200, &headers, (body, body.len() as u64));
        let pattern = |text: &str| ResponseCapture::Pattern(Regex::new(text).unwrap());
        for (capture, expected) in [
            (ResponseCapture::Header("Location".to_owned()), "/home"),
            (ResponseCapture::Json("/id".to_owned()), "7"),
            (ResponseCapture::Json("/name".to_owned()), "x"),
            (pattern("csrf value='([^']*)'"), "abc"),
            (pattern("c..f"), "csrf"),
        ] {
            assert_eq!(capture.take(&mut response).unwrap(), expected);
        }
        for capture in [
            ResponseCapture::Header("x".to_owned()),
            ResponseCapture::Json("/no".to_owned()),
            pattern("none"),
        ] {
            assert!(capture.take(&mut response).is_err(), "{capture:?}");
        }
    }
}
