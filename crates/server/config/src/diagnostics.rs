//! Errors and warnings of a configuration, with their place and advice.

use std::fmt;
use std::io::IsTerminal;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde_json::json;

use super::source::{SourceFile, SourceFiles, SourceSpan};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The configuration is invalid.
    Error,
    /// The configuration is valid, but may not do what was meant.
    Warning,
}

/// An error or a warning about a place in a configuration.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    severity: Severity,
    title: String,
    span: Option<SourceSpan>,
    label: String,
    related: Option<(SourceSpan, String)>,
    help: Option<String>,
}

impl Finding {
    /// An error at `span`. `title` says what is wrong, `label` what was expected there.
    pub(super) fn error(
        span: &SourceSpan,
        title: impl Into<String>,
        label: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            title: title.into(),
            span: Some(span.clone()),
            label: label.into(),
            related: None,
            help: None,
        }
    }

    /// As [`Finding::error`], for a warning.
    pub(super) fn warning(
        span: &SourceSpan,
        title: impl Into<String>,
        label: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(span, title, label)
        }
    }

    /// An error without a place, as a file that cannot be read.
    pub(super) fn nowhere(title: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            title: title.into(),
            span: None,
            label: String::new(),
            related: None,
            help: None,
        }
    }

    pub(super) fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Adds advice.
    #[must_use]
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds advice to the advice that there is.
    pub(super) fn add_help(&mut self, more: &str) {
        self.help = Some(match self.help.take() {
            Some(help) => format!("{help}; {more}"),
            None => more.to_owned(),
        });
    }

    /// Its file and its bytes there.
    pub(super) fn place(&self) -> Option<(usize, usize, usize)> {
        let span = self.span.as_ref();
        span.map(|span| (span.file, span.bytes.start, span.bytes.end))
    }

    /// Adds a second place that the error is about.
    #[must_use]
    pub(super) fn related(mut self, span: &SourceSpan, label: impl Into<String>) -> Self {
        self.related = Some((span.clone(), label.into()));
        self
    }
}

/// Everything that is to be said about a configuration, all found in one run.
///
/// Shown with `{}` it is text for people, one block per mistake with file, line, column and the line
/// itself. [`Diagnostics::to_json`] is the same for programs.
#[derive(Clone, Default)]
pub struct Diagnostics {
    pub(super) sources: SourceFiles,
    pub(super) findings: Vec<Finding>,
}

impl Diagnostics {
    /// The findings in the order of the files, none twice: what a site says wrong, its locations
    /// inherit.
    pub(super) fn in_order(mut self) -> Self {
        self.findings.sort_by_key(Finding::place);
        self.findings
            .dedup_by(|one, two| one.span == two.span && one.title == two.title);
        self
    }

    /// The number of mistakes, warnings not counted.
    pub fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    /// The number of warnings.
    pub fn warnings(&self) -> usize {
        self.count(Severity::Warning)
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// The names and the texts of the files of the configuration, the first one first.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sources.texts()
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    }

    /// An array with one object per finding: `severity`, `message`, `file`, `line`, `column` (both
    /// from 1, the column in characters), `text` (the line), `label`, `help`; `null` where there is
    /// nothing to say.
    pub fn to_json(&self) -> serde_json::Value {
        self.findings
            .iter()
            .map(|finding| {
                let span = finding.span.as_ref();
                let source = span.and_then(|span| self.sources.get(span));
                let at = source
                    .zip(span)
                    .map(|(source, span)| SourceLine::of(source, span.bytes.start));
                json!({
                    "severity": match finding.severity {
                        Severity::Error => "error",
                        Severity::Warning => "warning",
                    },
                    "message": finding.title,
                    "file": source.map(|source| &source.name),
                    "line": at.as_ref().map(|at| at.number),
                    "column": at.as_ref().map(|at| at.column),
                    "text": at.as_ref().map(|at| at.text),
                    "label": (!finding.label.is_empty()).then_some(&finding.label),
                    "help": finding.help,
                })
            })
            .collect()
    }

    /// The text for people, with colours or without.
    pub fn render(&self, colours: bool) -> String {
        let renderer = if colours {
            Renderer::styled().decor_style(DecorStyle::Unicode)
        } else {
            Renderer::plain()
        };
        let mut text = String::new();
        for finding in &self.findings {
            text.push_str(&renderer.render(&[self.group(finding)]));
            text.push_str("\n\n");
        }
        text.push_str(&summary(self.errors(), self.warnings()));
        text
    }

    /// The text for people, with colours if standard error is a terminal that shows them.
    pub fn render_for_stderr(&self) -> String {
        self.render(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
    }

    fn group<'a>(&'a self, finding: &'a Finding) -> Group<'a> {
        let level = match finding.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(&finding.title));
        let main = finding
            .span
            .as_ref()
            .map(|span| (span, &finding.label, AnnotationKind::Primary));
        let other = finding
            .related
            .as_ref()
            .map(|(span, label)| (span, label, AnnotationKind::Context));
        match (main, other) {
            (Some(main), Some(other)) if main.0.file == other.0.file => {
                group = self.annotate(group, &[main, other]);
            }
            (main, other) => {
                for annotation in main.into_iter().chain(other) {
                    group = self.annotate(group, &[annotation]);
                }
            }
        }
        if let Some(help) = &finding.help {
            group = group.element(Level::HELP.message(help));
        }
        group
    }

    /// Shows lines of one file.
    fn annotate<'a>(
        &'a self,
        group: Group<'a>,
        annotations: &[(&SourceSpan, &'a String, AnnotationKind)],
    ) -> Group<'a> {
        let first = annotations.first();
        let Some(source) = first.and_then(|(span, ..)| self.sources.get(span)) else {
            return group;
        };
        let end = source.text.len();
        let annotations = annotations.iter().map(|(span, label, kind)| {
            let start = floor(&source.text, span.bytes.start.min(end));
            let span = start..ceil(&source.text, span.bytes.end.clamp(start, end));
            let annotation = kind.span(span);
            if label.is_empty() {
                annotation
            } else {
                annotation.label(label.as_str())
            }
        });
        group.element(
            Snippet::source(&source.text)
                .path(&source.name)
                .annotations(annotations),
        )
    }
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

fn summary(errors: usize, warnings: usize) -> String {
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    match (errors, warnings) {
        (errors, 0) => count(errors, "error"),
        (0, warnings) => count(warnings, "warning"),
        (errors, warnings) => {
            format!("{}, {}", count(errors, "error"), count(warnings, "warning"))
        }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl fmt::Debug for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Diagnostics {}

/// A line of a file, and a column in it.
struct SourceLine<'a> {
    number: usize,
    column: usize,
    text: &'a str,
}

impl<'a> SourceLine<'a> {
    fn of(source: &'a SourceFile, at: usize) -> Self {
        let at = floor(&source.text, at.min(source.text.len()));
        let (before, after) = source.text.split_at(at);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let end = at + after.find('\n').unwrap_or(after.len());
        Self {
            number: before.matches('\n').count() + 1,
            column: before.get(start..).unwrap_or("").chars().count() + 1,
            text: source
                .text
                .get(start..end)
                .unwrap_or("")
                .trim_end_matches('\r'),
        }
    }
}

/// The one of `known` that `unknown` was probably meant to be.
pub(super) fn nearest<'a>(
    unknown: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(unknown, name), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}
