//! The template function `url`: URLs of named routes.

use std::cell::RefCell;

use minijinja::value::Kwargs;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};

use crate::app::Urls;

thread_local! {
    /// The URLs of the request for which a page is rendered, during the rendering.
    static CURRENT: RefCell<Option<Urls>> = const { RefCell::new(None) };
}

/// Adds the function to templates.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_function("url", |state: &State, name: &str, values: Kwargs| {
        let path = path(name, &values)?;
        values.assert_all_used()?;
        Ok::<_, Error>(match state.auto_escape() {
            AutoEscape::Html => Value::from_safe_string(path.replace('&', "&amp;")),
            _ => Value::from(path),
        })
    });
}

/// Runs `make` with these URLs.
pub(super) fn with<T>(urls: Option<&Urls>, make: impl FnOnce() -> T) -> T {
    let outer = CURRENT.replace(urls.cloned());
    let made = make();
    CURRENT.set(outer);
    made
}

fn path(name: &str, values: &Kwargs) -> Result<String, Error> {
    let mut texts = Vec::new();
    for name in values.args() {
        texts.push((name, values.get::<Value>(name)?));
    }
    // The arguments have no order.
    texts.sort_by_key(|(name, _)| *name);
    let refuse = |why: String| Error::new(ErrorKind::InvalidOperation, why);
    CURRENT.with_borrow(|urls| match urls {
        Some(urls) => urls
            .path(name, texts)
            .map_err(|error| refuse(error.to_string())),
        None => Err(refuse(
            "routes have addresses only in a page that is made for a request".into(),
        )),
    })
}
