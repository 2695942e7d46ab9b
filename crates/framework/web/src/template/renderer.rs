//! `Renderer`: the compiled templates of one worker.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use apus_http::{DevelopmentHosts, Request, StatusCode};
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

use super::{Page, TemplateError, Templates, TemplatesState, urls};
use crate::app::Urls;
use apus_compress::media_type;
use apus_handler::{Error, FromRequestHead, Matched, RouteCheck};

thread_local! {
    /// The environments of this thread, as long as their templates exist.
    static COMPILED: RefCell<Vec<(Weak<TemplatesState>, Rc<Environment<'static>>)>> =
        const { RefCell::new(Vec::new()) };
}

/// An extractor that renders the [`Templates`] of an application.
#[derive(Clone)]
pub struct Renderer {
    environment: Rc<Environment<'static>>,
    reloads: bool,
    /// The URLs of the request, if there is one.
    urls: Option<Urls>,
    /// The language of the function `t`, if there is one.
    #[cfg(feature = "i18n")]
    language: Option<apus_i18n::Language>,
}

impl Templates {
    /// A renderer for this thread, outside handlers.
    ///
    /// # Errors
    /// A template has an error that [`TemplatesBuilder::load`](super::TemplatesBuilder::load) did not check.
    pub fn renderer(&self) -> Result<Renderer, TemplateError> {
        let reloads = self.shared.reloads;
        let known = COMPILED.with_borrow(|compiled| {
            let mut compiled = compiled.iter();
            compiled
                .find(|(of, _)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(&self.shared)))
                .map(|(_, environment)| environment.clone())
        });
        let environment = match known {
            Some(environment) => environment,
            None => {
                let environment = Rc::new(self.environment()?);
                COMPILED.with_borrow_mut(|compiled| {
                    compiled.retain(|(of, _)| of.strong_count() > 0);
                    compiled.push((Arc::downgrade(&self.shared), environment.clone()));
                });
                environment
            }
        };
        Ok(Renderer {
            environment,
            reloads,
            urls: None,
            #[cfg(feature = "i18n")]
            language: None,
        })
    }
}

impl Renderer {
    /// Renders a page. Its media type follows from the template's extension. An error in a template is a
    /// 500, in development a page that shows it, at the hosts of this machine
    /// ([`apus_http::DevelopmentHosts`]).
    pub fn page(&self, name: &str, context: impl Serialize) -> Page {
        match self.text(name, context) {
            Ok(text) => Page::of(text, content_type(name)),
            Err(error) => Page::failed(error, self.reloads),
        }
    }

    /// Renders a text, for example of a mail.
    ///
    /// # Errors
    /// The template does not exist or has an error.
    pub fn text(&self, name: &str, context: impl Serialize) -> Result<String, TemplateError> {
        let template = self.environment.get_template(name)?;
        let render = || urls::with(self.urls.as_ref(), || template.render(Serde(context)));
        #[cfg(feature = "i18n")]
        let render = || apus_i18n::Language::while_rendering(self.language.as_ref(), render);
        Ok(render()?)
    }

    /// This renderer with another language of the function `t` than the language of the request, as for a mail.
    #[cfg(feature = "i18n")]
    #[must_use]
    pub fn language(self, language: apus_i18n::Language) -> Self {
        Self {
            language: Some(language),
            ..self
        }
    }

    /// A mail of two templates: `NAME.txt`, whose first line is `Subject: ...`, and `NAME.html`, which may be missing.
    ///
    /// # Errors
    /// A template has an error, or `NAME.txt` does not exist.
    #[cfg(feature = "mail")]
    pub fn mail(
        &self,
        to: impl Into<String>,
        name: &str,
        context: impl Serialize,
    ) -> Result<apus_mail::Mail, TemplateError> {
        let mail = apus_mail::Mail::of_text(to, &self.text(&format!("{name}.txt"), &context)?);
        let html = format!("{name}.html");
        match self.environment.get_template(&html) {
            Err(error) if error.kind() == minijinja::ErrorKind::TemplateNotFound => Ok(mail),
            _ => Ok(mail.html(self.text(&html, &context)?)),
        }
    }
}

/// The media type for the extension of a template, with its charset.
fn content_type(name: &str) -> String {
    let stem = [".j2", ".jinja", ".jinja2"]
        .iter()
        .find_map(|extension| name.strip_suffix(extension))
        .unwrap_or(name);
    let extension = media_type::extension(stem.as_bytes());
    let media_type = media_type::of_extension(&extension);
    if media_type::has_charset(media_type) {
        format!("{media_type}; charset=utf-8")
    } else {
        media_type.to_owned()
    }
}

impl FromRequestHead for Renderer {
    type Rejection = Error;

    fn from_head(request: &Request, matched: &Matched<'_>) -> Result<Self, Error> {
        let templates = matched.state::<Templates>().ok_or_else(|| {
            Error::not_provided(
                "a handler takes a Renderer, but the App was given no Templates as state",
            )
        })?;
        let renderer = templates.renderer().map_err(|error| {
            error.log();
            Error::of(StatusCode::INTERNAL_SERVER_ERROR)
        })?;
        let Ok(urls) = Urls::from_head(request, matched);
        Ok(Self {
            // The page of an error has lines of the template, which is not for pages of other sites (DNS rebinding).
            reloads: renderer.reloads && DevelopmentHosts::of_process().contain(request),
            urls: Some(urls),
            #[cfg(feature = "i18n")]
            language: apus_i18n::Language::of(request),
            ..renderer
        })
    }

    fn check(route: &mut RouteCheck<'_>) {
        if !route.has_state::<Templates>() {
            route.mistake(
                "the handler takes a Renderer, and the application has no Templates; \
                 `App::state(templates)` adds them",
            );
        }
    }
}

impl std::fmt::Debug for Renderer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renderer").finish_non_exhaustive()
    }
}
