//! The function `t` of templates.

use apus_i18n::Language;
use minijinja::{Environment, context};

use crate::languages::translations;

#[test]
fn a_template_is_in_the_language_of_its_reader() {
    let mut environment = Environment::new();
    Language::add_to(&mut environment);
    let template = "{{ t('hello', name='<Ada>') }} {{ t('hello', name='Bob', language='en') }} {{ t('cart', count=count) }}";
    let template = environment.template_from_str(template).unwrap();
    let render = || template.render(context! { count => 5 });
    let polish = translations().language("pl");
    assert_eq!(
        Language::while_rendering(Some(&polish), render).unwrap(),
        "Cześć, <Ada>! Hello, Bob! 5 ptaków"
    );
    let error = Language::while_rendering(None, render).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("behind the layer `Translations`"),
        "{error}"
    );
}
