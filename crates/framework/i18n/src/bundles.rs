//! The bundles of a thread: the texts of each language with the rules of its plurals.
//!
//! A bundle remembers what it computed. Each worker has its own, so that workers share nothing.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use fluent_bundle::{FluentArgs, FluentBundle, FluentResource};

use crate::language_texts::LanguageTexts;

type Bundle = FluentBundle<Arc<FluentResource>>;

/// The bundles of some translations, while these exist.
type BundlesOf = (Weak<Vec<LanguageTexts>>, Rc<Vec<Bundle>>);

thread_local! {
    static BUNDLES: RefCell<Vec<BundlesOf>> = const { RefCell::new(Vec::new()) };
}

/// The text of a key, or of an attribute as `key.attribute`, if the language has it.
pub(crate) fn format(
    languages: &Arc<Vec<LanguageTexts>>,
    index: usize,
    key: &str,
    arguments: Option<&FluentArgs<'_>>,
) -> Option<String> {
    let bundles = bundles(languages);
    let bundle = bundles.get(index)?;
    let (key, attribute) = match key.split_once('.') {
        Some((key, attribute)) => (key, Some(attribute)),
        None => (key, None),
    };
    let message = bundle.get_message(key)?;
    let pattern = match attribute {
        Some(name) => message.get_attribute(name)?.value(),
        None => message.value()?,
    };
    let mut errors = Vec::new();
    let text = bundle.format_pattern(pattern, arguments, &mut errors);
    if let Some(error) = errors.first() {
        let language = languages.get(index).map_or("", |language| &*language.tag);
        tracing::warn!(key, language, %error, "a text is not complete");
    }
    Some(text.into_owned())
}

fn bundles(languages: &Arc<Vec<LanguageTexts>>) -> Rc<Vec<Bundle>> {
    let known = BUNDLES.with_borrow(|bundles| {
        let of = bundles
            .iter()
            .find(|(of, _)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(languages)));
        of.map(|(_, bundles)| bundles.clone())
    });
    known.unwrap_or_else(|| {
        let made: Rc<Vec<Bundle>> = Rc::new(languages.iter().map(bundle).collect());
        BUNDLES.with_borrow_mut(|bundles| {
            bundles.retain(|(of, _)| of.strong_count() > 0);
            bundles.push((Arc::downgrade(languages), made.clone()));
        });
        made
    })
}

fn bundle(language: &LanguageTexts) -> Bundle {
    let mut bundle = Bundle::new(vec![language.identifier.clone()]);
    // Marks of directions would be in attributes and mails, too.
    bundle.set_use_isolating(false);
    // It can only fail if the function `NUMBER` is there already.
    let _ = bundle.add_builtins();
    for resource in &language.resources {
        // That no key is there twice was checked when the texts were read.
        let _ = bundle.add_resource(resource.clone());
    }
    bundle
}
