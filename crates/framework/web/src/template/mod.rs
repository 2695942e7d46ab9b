//! HTML pages from templates in the language of Jinja2 (minijinja).
//!
//! ```
//! use apus::template::{Page, Renderer, Templates, context};
//! use apus::{App, Path};
//!
//! async fn hello(renderer: Renderer, Path(name): Path<String>) -> Page {
//!     renderer.page("hello.html", context! { name })
//! }
//!
//! let templates = Templates::embedded([
//!     ("base.html", "<title>Apus</title>{% block body %}{% endblock %}"),
//!     ("hello.html", "{% extends 'base.html' %}{% block body %}Hello, {{ name }}!{% endblock %}"),
//! ])
//! .load()?;
//! let app = App::new().state(templates).get("/hello/{name}", hello);
//! # let client = apus::testing::TestClient::new(app);
//! # client.get("/hello/a<b").send().assert_ok().assert_text("<title>Apus</title>Hello, a&lt;b!");
//! # Ok::<(), apus::template::TemplateError>(())
//! ```
//!
//! Values in `.html`, `.htm`, `.xhtml`, `.xml` and `.svg` templates are escaped for HTML, values in `.json`,
//! `.js` and `.yaml` templates for JSON; a further extension `.j2`, `.jinja` or `.jinja2` is ignored. Printing
//! an undefined name is an error; in a condition it is false.
//!
//! Templates have the functions of minijinja and these:
//!
//! - `asset("app.css")`: the URL of a file of [`TemplatesBuilder::assets`], with its hashed name.
//! - `url("user", id=1)`: the URL of a route with a name ([`App::name`](crate::App::name)), like
//!   [`Urls::path`](crate::Urls::path).
//! - `t("cart", count=2)`: a text in the language of the request, with the feature `i18n`.

mod context;
mod error;
mod page;
mod renderer;
mod text;
mod urls;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use minijinja::{AutoEscape, Environment, UndefinedBehavior, default_auto_escape_callback};
#[cfg(feature = "files")]
use minijinja::{ErrorKind, State};

pub use self::error::TemplateError;
pub use self::page::Page;
pub use self::renderer::Renderer;
use self::text::TemplateText;
#[cfg(feature = "files")]
use crate::assets::Assets;

#[doc(hidden)]
pub use self::context::__private;
pub use crate::context;
pub use minijinja::Value;

/// Loaded templates: a state of an application ([`App::state`](crate::App::state)). Handlers take a
/// [`Renderer`] of them.
///
/// Each worker compiles them once, so that workers share nothing when they render.
#[derive(Clone)]
pub struct Templates {
    shared: Arc<TemplatesState>,
}

struct TemplatesState {
    source: TemplateText,
    reloads: bool,
    change: Vec<EnvironmentChange>,
}

/// A function that adds to an environment.
type EnvironmentChange = Box<dyn Fn(&mut Environment<'static>) + Send + Sync>;

/// A builder of [`Templates`]; see [`Templates::folder`] and [`Templates::embedded`].
#[must_use]
pub struct TemplatesBuilder {
    from: TemplateOrigin,
    reloads: bool,
    change: Vec<EnvironmentChange>,
}

enum TemplateOrigin {
    Folder(PathBuf),
    Memory(Vec<(Cow<'static, str>, Cow<'static, [u8]>)>),
}

impl Templates {
    /// The files below a folder, by their paths in it: `users/show.html`; without hidden files.
    ///
    /// A debug build checks on each render whether a file changed. A release build reads all files at the
    /// start. See [`TemplatesBuilder::reload`].
    pub fn folder(path: impl Into<PathBuf>) -> TemplatesBuilder {
        TemplatesBuilder::new(TemplateOrigin::Folder(path.into()))
    }

    /// Templates in the program, by name. `apus::embedded!("templates")` embeds a folder.
    pub fn embedded<N, T>(templates: impl IntoIterator<Item = (N, T)>) -> TemplatesBuilder
    where
        N: Into<Cow<'static, str>>,
        T: AsRef<[u8]> + 'static,
    {
        let templates = templates.into_iter();
        TemplatesBuilder::new(TemplateOrigin::Memory(
            templates
                .map(|(name, text)| (name.into(), Cow::Owned(text.as_ref().to_vec())))
                .collect(),
        ))
    }

    /// The environment of a thread. Templates in memory are compiled, files are not yet.
    fn environment(&self) -> Result<Environment<'static>, TemplateError> {
        let mut environment = Environment::new();
        environment.set_debug(true);
        environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        environment.set_auto_escape_callback(auto_escape);
        for change in &self.shared.change {
            change(&mut environment);
        }
        urls::add_to(&mut environment);
        #[cfg(feature = "i18n")]
        apus_i18n::Language::add_to(&mut environment);
        self.shared.source.add_to(&mut environment)?;
        Ok(environment)
    }
}

impl TemplatesBuilder {
    fn new(from: TemplateOrigin) -> Self {
        Self {
            from,
            reloads: cfg!(debug_assertions),
            change: Vec::new(),
        }
    }

    /// Whether changed templates of a folder are read again and errors are shown to the client with file and
    /// line (development). Otherwise the client gets a 500, and the log the error. Default: in debug builds.
    pub fn reload(mut self, reloads: bool) -> Self {
        self.reloads = reloads;
        self
    }

    /// Adds the template function `asset(name)`, which returns the URL of a file.
    #[cfg(feature = "files")]
    pub fn assets(self, assets: &Assets) -> Self {
        let assets = assets.clone();
        self.environment(move |environment| {
            let assets = assets.clone();
            environment.add_function("asset", move |state: &State, name: &str| {
                match assets.url(name) {
                    // The URL needs no escapes in HTML.
                    Some(address) if *state.auto_escape() == AutoEscape::Html => {
                        Ok(Value::from_safe_string(address.into_owned()))
                    }
                    Some(address) => Ok(Value::from(address)),
                    None => Err(minijinja::Error::new(
                        ErrorKind::InvalidOperation,
                        format!("there is no asset {name:?}"),
                    )),
                }
            });
        })
    }

    /// Adds filters, functions, tests and globals to the environment of each worker.
    pub fn environment(
        mut self,
        change: impl Fn(&mut Environment<'static>) + Send + Sync + 'static,
    ) -> Self {
        self.change.push(Box::new(change));
        self
    }

    /// Loads the templates. It compiles them all, unless they are read again on changes.
    ///
    /// # Errors
    /// The folder cannot be read, or a template has an error.
    pub fn load(self) -> Result<Templates, TemplateError> {
        let source = match self.from {
            TemplateOrigin::Folder(path) if self.reloads => TemplateText::watched(path)?,
            TemplateOrigin::Folder(path) => TemplateText::read(&path)?,
            TemplateOrigin::Memory(templates) => TemplateText::of(templates)?,
        };
        let templates = Templates {
            shared: Arc::new(TemplatesState {
                source,
                reloads: self.reloads,
                change: self.change,
            }),
        };
        templates.environment()?;
        Ok(templates)
    }
}

/// The escaping of minijinja, and for more XML extensions.
fn auto_escape(name: &str) -> AutoEscape {
    let stem = [".j2", ".jinja", ".jinja2"]
        .iter()
        .find_map(|extension| name.strip_suffix(extension))
        .unwrap_or(name);
    match stem.rsplit('.').next() {
        Some("svg" | "xhtml") => AutoEscape::Html,
        _ => default_auto_escape_callback(name),
    }
}

impl std::fmt::Debug for Templates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Templates")
            .field("source", &self.shared.source)
            .field("reloads", &self.shared.reloads)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for TemplatesBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TemplatesBuilder")
            .field("reloads", &self.reloads)
            .finish_non_exhaustive()
    }
}
