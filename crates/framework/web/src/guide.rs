//! The chapters of the guide, whose code is compiled and run as doc tests.

macro_rules! chapters {
    ($($name:ident: $file:literal;)*) => {$(
        #[doc = include_str!(concat!("../guide/", $file))]
        mod $name {}
    )*};
}

chapters! {
    first_application: "first-application.md";
    routes: "routes.md";
    handlers: "handlers.md";
    responses: "responses.md";
    validation: "validation.md";
    layers: "layers.md";
    databases: "databases.md";
    sessions: "sessions.md";
    log_in: "log-in.md";
    accounts: "accounts.md";
    templates: "templates.md";
    languages: "languages.md";
    live: "live.md";
    services: "services.md";
    cache_and_storage: "cache-and-storage.md";
    jobs: "jobs.md";
    testing: "testing.md";
    production: "production.md";
    coming_from: "coming-from.md";
}
