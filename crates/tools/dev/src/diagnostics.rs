//! What the compiler says about a build that failed.

use serde::Deserialize;

/// The errors of a build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BuildFailure {
    /// The errors of the compiler, in its order.
    pub(crate) errors: Vec<CompileError>,
    /// What Cargo wrote besides: the reason if the compiler has no errors.
    pub(crate) cargo: String,
}

/// An error of the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompileError {
    /// The file, line and column; `None` for an error of the linker, for example.
    pub(crate) place: Option<String>,
    /// The message in one line.
    pub(crate) message: String,
    /// The text that the compiler shows, without colours.
    pub(crate) rendered: String,
}

impl BuildFailure {
    /// The heading of a page about it.
    pub(crate) fn title(&self) -> String {
        match self.errors.len() {
            0 => "Cargo cannot build the project".to_owned(),
            1 => "The project does not compile: 1 error".to_owned(),
            count => format!("The project does not compile: {count} errors"),
        }
    }

    /// All errors as text.
    pub(crate) fn text(&self) -> String {
        if self.errors.is_empty() {
            self.cargo.clone()
        } else {
            let rendered = self.errors.iter().map(|error| error.rendered.trim_end());
            rendered.collect::<Vec<_>>().join("\n\n")
        }
    }
}

/// A message of the compiler, in the JSON of Cargo.
#[derive(Debug, Deserialize)]
pub(crate) struct CompilerMessage {
    pub(crate) level: String,
    message: String,
    #[serde(default)]
    spans: Vec<CompilerSpan>,
    /// With escape sequences for colours.
    #[serde(default)]
    pub(crate) rendered: Option<String>,
}

#[derive(Debug, Deserialize)]
struct CompilerSpan {
    file_name: String,
    line_start: usize,
    column_start: usize,
    is_primary: bool,
}

impl CompilerMessage {
    /// The error that it reports; `None` for warnings, and for the summary at the end of the errors of a crate.
    pub(crate) fn into_error(self) -> Option<CompileError> {
        let is_error = self.level.starts_with("error");
        let is_summary = self.spans.is_empty() && self.message.starts_with("aborting due to");
        if !is_error || is_summary {
            return None;
        }
        let primary = self.spans.iter().find(|span| span.is_primary);
        let place = primary.map(|span| {
            format!(
                "{}:{}:{}",
                span.file_name, span.line_start, span.column_start
            )
        });
        let rendered = self.rendered.as_deref().unwrap_or(&self.message);
        Some(CompileError {
            place,
            rendered: without_escapes(rendered),
            message: self.message,
        })
    }
}

/// A text without the escape sequences for colours (ECMA-48 section 5.4).
pub(crate) fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, sequence)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        let end = sequence.find(|c: char| matches!(c, '@'..='~'));
        rest = end
            .and_then(|end| sequence.get(end + 1..))
            .unwrap_or_default();
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_place_and_no_colours() {
        let message = r#"{"level":"error","message":"mismatched types","spans":[
            {"file_name":"src/a.rs","line_start":1,"column_start":1,"is_primary":false},
            {"file_name":"src/lib.rs","line_start":7,"column_start":5,"is_primary":true}],
            "rendered":"\u001b[1m\u001b[91merror[E0308]\u001b[0m: mismatched types\n"}"#;
        let message: CompilerMessage = serde_json::from_str(message).unwrap();
        let error = message.into_error().unwrap();
        assert_eq!(error.place.as_deref(), Some("src/lib.rs:7:5"));
        assert_eq!(error.rendered, "error[E0308]: mismatched types\n");
        for other in [
            r#"{"level":"warning","message":"unused","rendered":"warning: unused"}"#,
            r#"{"level":"error","message":"aborting due to 1 previous error","rendered":""}"#,
        ] {
            let message: CompilerMessage = serde_json::from_str(other).unwrap();
            assert_eq!(message.into_error(), None, "{other}");
        }
    }

    #[test]
    fn escape_sequences_are_removed() {
        for (text, plain) in [
            ("plain", "plain"),
            ("\x1b[1;31mred\x1b[0m!", "red!"),
            ("cut\x1b[38;5", "cut"),
            ("\x1b[", ""),
        ] {
            assert_eq!(without_escapes(text), plain);
        }
    }
}
