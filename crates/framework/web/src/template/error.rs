//! `TemplateError`: an error in a template, with its file, line and text.

use std::error::Error;
use std::fmt::{self, Write};
use std::io;
use std::path::Path;

use minijinja::HtmlEscape;

use crate::server::StartError;

/// An error in a template, or on reading it.
#[derive(Debug)]
pub struct TemplateError {
    error: minijinja::Error,
}

/// The number of lines that are shown before and after the line of an error.
const AROUND: usize = 4;

impl TemplateError {
    pub(super) fn unreadable(path: &Path, error: &io::Error) -> Self {
        let message = format!("{} cannot be read: {error}", path.display());
        let kind = minijinja::ErrorKind::TemplateNotFound;
        minijinja::Error::new(kind, message).into()
    }

    /// The name of the template.
    pub fn name(&self) -> Option<&str> {
        self.error.name()
    }

    /// The line of the error, from 1.
    pub fn line(&self) -> Option<usize> {
        self.error.line()
    }

    /// The message without the place.
    fn message(&self) -> String {
        let kind = self.error.kind();
        match self.error.detail() {
            Some(detail) => format!("{kind}: {detail}"),
            None => kind.to_string(),
        }
    }

    pub(super) fn log(&self) {
        tracing::error!(error = %self, "a template failed");
    }

    /// A page for developers.
    pub(super) fn html(&self) -> String {
        // Slashes need no escape.
        let escape = |text: &str| HtmlEscape(text).to_string().replace("&#x2f;", "/");
        let mut excerpt = String::new();
        if let (Some(source), Some(line)) = (self.error.template_source(), self.line()) {
            let first = line.saturating_sub(AROUND).max(1);
            let lines = source.lines().enumerate();
            for (index, text) in lines
                .skip(first.saturating_sub(1))
                .take_while(|(index, _)| *index < line.saturating_add(AROUND))
            {
                let number = index.saturating_add(1);
                let mark = if number == line {
                    " class=\"here\""
                } else {
                    ""
                };
                // Writing into a string does not fail.
                let _ = writeln!(
                    excerpt,
                    "<li value=\"{number}\"{mark}>{}</li>",
                    escape(text)
                );
            }
        }
        let place = match (self.name(), self.line()) {
            (Some(name), Some(line)) => format!("{name}:{line}"),
            (Some(name), None) => name.to_owned(),
            _ => String::new(),
        };
        let mut causes = String::new();
        let mut cause = self.error.source();
        while let Some(error) = cause {
            let _ = writeln!(causes, "<p>because of: {}</p>", escape(&error.to_string()));
            cause = error.source();
        }
        include_str!("error.html")
            .replace("{place}", &escape(&place))
            .replace("{message}", &escape(&self.message()))
            .replace("{causes}", &causes)
            .replace("{excerpt}", &excerpt)
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.line()) {
            (Some(name), Some(line)) => write!(f, "{name}:{line}: ")?,
            (Some(name), None) => write!(f, "{name}: ")?,
            _ => {}
        }
        f.write_str(&self.message())?;
        let mut cause = self.error.source();
        while let Some(error) = cause {
            write!(f, "; because of: {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl Error for TemplateError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

impl From<minijinja::Error> for TemplateError {
    fn from(error: minijinja::Error) -> Self {
        Self { error }
    }
}

impl From<TemplateError> for StartError {
    fn from(error: TemplateError) -> Self {
        Self::other(error)
    }
}
