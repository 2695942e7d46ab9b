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
//! What is written into `.html`, `.htm`, `.xhtml`, `.xml` and `.svg` is escaped for HTML, what is written
//! into `.json`, `.js` and `.yaml` for JSON; `.j2`, `.jinja` and `.jinja2` behind them make no
//! difference. A name that the context does not have is an error where it is written, and false where
//! it is asked for.
//!
//! Templates have the functions of minijinja and these:
//!
//! - `asset("app.css")`: the address of a file among [`TemplatesBuilder::assets`], by its hashed name.
//! - `url("user", id=1)`: the path of a route that [`App::name`](crate::App::name) named, as [`Urls`](crate::Urls)
//!   makes it: what it has no parameter for becomes a query.

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

/// Templates that were found and understood: a state of an application
/// ([`App::state`](crate::App::state)), of which handlers take a [`Renderer`].
///
/// They are compiled once by each worker, so that workers share nothing when they render.
#[derive(Clone)]
pub struct Templates {
    shared: Arc<TemplatesState>,
}

struct TemplatesState {
    source: TemplateText,
    reloads: bool,
    change: Vec<EnvironmentChange>,
}

/// What is added to an environment.
type EnvironmentChange = Box<dyn Fn(&mut Environment<'static>) + Send + Sync>;

/// Templates before they are read; see [`Templates::folder`] and [`Templates::embedded`].
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
    /// The files below a folder, each by its path from there: `users/show.html`. Hidden files are none.
    ///
    /// A debug build looks at each render whether a file changed; a release reads them all at the
    /// start. See [`TemplatesBuilder::reload`].
    pub fn folder(path: impl Into<PathBuf>) -> TemplatesBuilder {
        TemplatesBuilder::new(TemplateOrigin::Folder(path.into()))
    }

    /// Templates that are part of the program, by name; `apus::embedded!("templates")` makes them of a
    /// folder.
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

    /// The environment of a thread, before any template was compiled unless they are all at hand.
    fn environment(&self) -> Result<Environment<'static>, TemplateError> {
        let mut environment = Environment::new();
        environment.set_debug(true);
        environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        environment.set_auto_escape_callback(auto_escape);
        for change in &self.shared.change {
            change(&mut environment);
        }
        urls::add_to(&mut environment);
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

    /// Whether this is development: templates of a folder are read again when they changed, and what
    /// goes wrong in one is shown to the client, with its file and line. Otherwise the client gets
    /// 500, and the log the rest. Default: in debug builds.
    pub fn reload(mut self, reloads: bool) -> Self {
        self.reloads = reloads;
        self
    }

    /// Gives templates the function `asset(name)`, which gives the address of a file.
    #[cfg(feature = "files")]
    pub fn assets(self, assets: &Assets) -> Self {
        let assets = assets.clone();
        self.environment(move |environment| {
            let assets = assets.clone();
            environment.add_function("asset", move |state: &State, name: &str| {
                match assets.url(name) {
                    // It holds nothing that HTML would have escaped.
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

    /// Finds the templates, and compiles them all unless they are read again when they change.
    ///
    /// # Errors
    /// The folder cannot be read, or a template has a mistake: it is named with its line.
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

/// As minijinja has it, and for more kinds of XML.
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
