//! The function `t` of templates: texts in the language of the page.

use std::cell::RefCell;

use fluent_bundle::FluentValue;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};

use crate::Language;

thread_local! {
    /// The language of the page that is rendered, during the rendering.
    static CURRENT: RefCell<Option<Language>> = const { RefCell::new(None) };
}

impl Language {
    /// Adds the function `t` to the environment of templates: `{{ t("cart", count=2) }}` is a text in the language of
    /// [`Language::while_rendering`], and `{{ t("hello", language="de") }}` one in another language.
    pub fn add_to(environment: &mut Environment<'_>) {
        environment.add_function("t", text);
    }

    /// Runs a function that renders templates in this language; in none if there is none.
    pub fn while_rendering<T>(language: Option<&Self>, make: impl FnOnce() -> T) -> T {
        let outer = CURRENT.replace(language.cloned());
        let made = make();
        CURRENT.set(outer);
        made
    }
}

fn text(key: &str, values: Kwargs) -> Result<String, Error> {
    let current = CURRENT.with_borrow(Clone::clone).ok_or_else(|| {
        let why = "texts have a language only behind the layer `Translations`, or in a renderer with a language";
        Error::new(ErrorKind::InvalidOperation, why)
    })?;
    let mut arguments = Vec::new();
    let mut language = current.clone();
    for name in values.args() {
        let value = values.get::<Value>(name)?;
        match (name, value.as_str()) {
            ("language", Some(tag)) => language = current.other(tag),
            _ => arguments.push((name, argument(&value))),
        }
    }
    Ok(language.text_with(key, arguments))
}

/// A value of a template as one of Fluent, which knows numbers and texts.
fn argument(value: &Value) -> FluentValue<'static> {
    let number = match value.kind() {
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        _ => None,
    };
    match number {
        Some(number) => number.into(),
        None => value.to_string().into(),
    }
}
