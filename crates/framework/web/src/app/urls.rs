//! `Urls`: the URLs of named routes.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::panic::Location;
use std::rc::Rc;

use apus_http::{Request, mount_prefix, percent};

use crate::router::{PathValueError, RouteError, RouteErrorKind, RoutePattern};
use apus_handler::{FromRequestHead, Matched};

/// The routes with names.
#[derive(Default)]
pub(crate) struct NamedRoutes(HashMap<Box<str>, (RoutePattern, &'static Location<'static>)>);

impl NamedRoutes {
    pub(super) fn add(
        &mut self,
        name: Box<str>,
        pattern: RoutePattern,
        at: &'static Location<'static>,
    ) -> Result<(), RouteError> {
        if let Some((_, other)) = self.0.get(&name) {
            return Err(RouteError::new(&name, at, RouteErrorKind::NameTwice(other)));
        }
        self.0.insert(name, (pattern, at));
        Ok(())
    }
}

/// An extractor that makes the URLs of routes with a name (see [`crate::App::name`]).
///
/// ```
/// use apus::{App, Redirect, Urls};
///
/// async fn create(urls: Urls) -> apus::Result<Redirect> {
///     Ok(Redirect::to(urls.path("user", [("id", "7"), ("tab", "posts")])?))
/// }
///
/// let app = App::new()
///     .get("/users/{id}", async || "a user").name("user")
///     .post("/users", create);
/// # app.check().unwrap();
/// ```
#[derive(Clone)]
pub struct Urls {
    named: Rc<NamedRoutes>,
    /// The path that the application is mounted under.
    base: Box<str>,
    /// `https://example.com`.
    origin: Box<str>,
}

impl Urls {
    /// The path of a route, percent-encoded. Values without a parameter in the path become the query.
    ///
    /// # Errors
    /// No route has the name, or a parameter has no valid value.
    pub fn path<'v>(
        &self,
        name: &str,
        values: impl IntoIterator<Item = (&'v str, impl Display)>,
    ) -> Result<String, UrlError> {
        let error = |why| UrlError {
            name: name.to_owned(),
            why,
        };
        let (pattern, _) = self.named.0.get(name).ok_or_else(|| error(None))?;
        let mut values: Vec<(&str, String)> = values
            .into_iter()
            .map(|(name, value)| (name, value.to_string()))
            .collect();
        let filled = pattern.fill(&mut values).map_err(|why| error(Some(why)))?;
        let mut address = format!("{}{filled}", self.base);
        for (number, (name, value)) in values.into_iter().enumerate() {
            address.push(if number == 0 { '?' } else { '&' });
            percent::encode_form_onto(&mut address, name);
            address.push('=');
            percent::encode_form_onto(&mut address, &value);
        }
        Ok(address)
    }

    /// The URL of a route: its path (see [`Urls::path`]) with the scheme and host of the request.
    ///
    /// # Errors
    /// No route has the name, or a parameter has no valid value.
    pub fn url<'v>(
        &self,
        name: &str,
        values: impl IntoIterator<Item = (&'v str, impl Display)>,
    ) -> Result<String, UrlError> {
        Ok(format!("{}{}", self.origin, self.path(name, values)?))
    }
}

impl FromRequestHead for Urls {
    type Rejection = std::convert::Infallible;

    fn from_head(request: &Request, matched: &Matched<'_>) -> Result<Self, Self::Rejection> {
        let origin = request.authority().map_or_else(String::new, |authority| {
            format!("{}://{authority}", request.scheme())
        });
        Ok(Self {
            named: matched.scope.states.get_rc().unwrap_or_default(),
            base: mount_prefix(request).into(),
            origin: origin.into(),
        })
    }
}

impl fmt::Debug for Urls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Urls").finish_non_exhaustive()
    }
}

/// A URL that cannot be made of these values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError {
    name: String,
    /// `None`: there is no such route.
    why: Option<PathValueError>,
}

impl Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.why {
            None => write!(f, "no route is named {name:?}"),
            Some(PathValueError::Missing(parameter)) => {
                write!(f, "the route {name:?} needs a value for {parameter:?}")
            }
            Some(PathValueError::Invalid(parameter, value)) => write!(
                f,
                "{value:?} cannot be the value of {parameter:?} in the path of the route {name:?}"
            ),
        }
    }
}

impl std::error::Error for UrlError {}
