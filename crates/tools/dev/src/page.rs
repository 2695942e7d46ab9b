//! The pages of `apus dev`: mistakes of the sources, panics, and the end of the application.

use apus_http::{Body, HeaderValue, Response, escape_html, header};

use crate::diagnostics::BuildFailure;
use crate::panics::ReportedPanic;
use crate::state::ApplicationFailure;

/// The most errors of the compiler on a page: those after the first ones mostly follow from them.
const MAX_ERRORS: usize = 20;

/// A page.
pub(crate) struct DevPage(String);

impl DevPage {
    /// A page with this title, and with HTML below it.
    pub(crate) fn new(title: &str, content: &str) -> Self {
        let title = escape_html(title);
        // Inserted text is not searched for placeholders.
        let mut page = String::new();
        for part in include_str!("page/page.html").split_inclusive('}') {
            match part.rsplit_once('{') {
                Some((before, "title}")) => page.extend([before, &title]),
                Some((before, "content}")) => page.extend([before, content]),
                _ => page.push_str(part),
            }
        }
        Self(page)
    }

    /// The errors of the compiler, each with its place; or what Cargo says.
    pub(crate) fn of_build_failure(failure: &BuildFailure) -> Self {
        let mut content = String::new();
        for error in failure.errors.iter().take(MAX_ERRORS) {
            content += &section(
                error.place.as_deref(),
                &error.message,
                &escape_html(error.rendered.trim_end()),
            );
        }
        let others = failure.errors.len().saturating_sub(MAX_ERRORS);
        if others > 0 {
            content += &format!("<p>There are {others} more.</p>");
        }
        if failure.errors.is_empty() {
            content += &format!("<pre>{}</pre>", escape_html(&failure.cargo));
        }
        content += "<p>The page is loaded again after the next build.</p>";
        Self::new(&failure.title(), &content)
    }

    /// The message of a panic, its place, and the frames, with frames of the project in bold.
    pub(crate) fn of_panic(panic: &ReportedPanic) -> Self {
        let mut frames = String::new();
        for line in panic.backtrace.lines() {
            let text = escape_html(line);
            // The standard library shows the paths of the project relative to the current folder.
            let is_own = line.trim_start().starts_with("at ./");
            frames += &if is_own {
                format!("<b>{text}</b>\n")
            } else {
                format!("{text}\n")
            };
        }
        let content = section(Some(&panic.place), &panic.message, frames.trim_end());
        Self::new("A handler panicked", &content)
    }

    /// Why there is no application, and what it wrote.
    pub(crate) fn of_application_failure(failure: &ApplicationFailure) -> Self {
        let content = format!(
            "<pre>{}</pre><p>It is started again after the next change.</p>",
            escape_html(&failure.output)
        );
        Self::new(&failure.title, &content)
    }

    /// Makes the page the body of a response, which keeps its status.
    pub(crate) fn replace(self, response: &mut Response) {
        let headers = response.headers_mut();
        for name in [
            "content-length",
            "content-encoding",
            "content-security-policy",
            "etag",
            "last-modified",
        ] {
            headers.remove(name);
        }
        headers.insert(
            &header::CONTENT_TYPE,
            &HeaderValue::from_static("text/html; charset=utf-8"),
        );
        headers.insert(
            &header::CACHE_CONTROL,
            &HeaderValue::from_static("no-store"),
        );
        *response.body_mut() = Body::from(self.0);
    }
}

/// A place in the source, a message, and escaped text.
fn section(place: Option<&str>, message: &str, text: &str) -> String {
    let place = place.map_or_else(String::new, |place| {
        format!("<p class=\"place\">{}</p>", escape_html(place))
    });
    let text = if text.is_empty() {
        String::new()
    } else {
        format!("<pre>{text}</pre>")
    };
    let message = escape_html(message);
    format!("<section>{place}<p class=\"message\">{message}</p>{text}</section>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::CompileError;

    #[test]
    fn text_of_the_project_is_not_html() {
        let failure = BuildFailure {
            errors: vec![CompileError {
                place: Some("src/<a>.rs:1:2".to_owned()),
                message: "expected `Vec<{title}>`".to_owned(),
                rendered: "error: <script>\n".to_owned(),
            }],
            cargo: String::new(),
        };
        let DevPage(page) = DevPage::of_build_failure(&failure);
        for text in [
            "src/&lt;a&gt;.rs:1:2",
            "expected `Vec&lt;{title}&gt;`",
            "error: &lt;script&gt;</pre>",
            "<title>The project does not compile: 1 error</title>",
        ] {
            assert!(page.contains(text), "{text} is missing:\n{page}");
        }
        assert!(!page.contains("<script"), "{page}");
    }
}
