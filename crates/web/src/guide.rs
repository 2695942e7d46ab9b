//! The chapters of the guide, so that all their code is compiled and run as tests of this crate.

macro_rules! chapters {
    ($($name:ident: $file:literal;)*) => {$(
        #[doc = include_str!(concat!("../../../docs/guide/", $file))]
        mod $name {}
    )*};
}

chapters! {
    first_application: "first-application.md";
    routes: "routes.md";
    handlers: "handlers.md";
    answers: "answers.md";
}
