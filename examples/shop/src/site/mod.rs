//! The pages of the shop, for browsers: accounts, pictures and a chat.

mod accounts;
mod chat;
mod page_parts;
mod pictures;

use apus::auth::Csrf;
use apus::layers::SecurityHeaders;
use apus::session::{Sessions, SqlStore};
use apus::sql::Db;
use apus::template::{Page, Renderer, TemplateError, Templates, context};
use apus::{App, ErrorFormat, Result, State};

pub(crate) use page_parts::PageParts;

use crate::Services;
use crate::model::Product;

/// The pages as a group of the application.
pub(crate) fn group(services: &Services) -> Result<App, TemplateError> {
    let templates = Templates::embedded(apus::embedded!("templates"));
    let app = App::new()
        .layer(SecurityHeaders::new())
        .layer(Sessions::new(SqlStore::new(services.db.clone())))
        .layer(Csrf::new())
        .error_format(ErrorFormat::Html)
        .state(templates.load()?)
        .get("/", home);
    let app = accounts::routes(app, services);
    let app = pictures::routes(app, services);
    let app = chat::routes(app);
    // The mails that were not sent, in development only: who reads them can reset every password.
    Ok(match services.mailer.page() {
        Some(page) if cfg!(debug_assertions) => app.mount("/dev/mails", page),
        _ => app,
    })
}

async fn home(renderer: Renderer, page: PageParts, State(db): State<Db>) -> Result<Page> {
    let products = Product::list(&db, 0, 20).await?;
    let products: Vec<_> = products
        .iter()
        .map(|product| {
            let (whole, cents) = (product.price_cents / 100, product.price_cents % 100);
            context! { name => product.name, price => format!("{whole}.{cents:02}") }
        })
        .collect();
    Ok(renderer.page("home.html", context! { page, products }))
}
