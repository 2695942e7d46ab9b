//! A shop: a JSON API of users, products and orders, and pages with accounts, pictures and a chat, on SQLite,
//! PostgreSQL or MariaDB.

#![forbid(unsafe_code)]

pub mod model;
mod page;
mod problem;
mod routes;
mod site;

use std::path::PathBuf;

use apus::layers::{Logged, RequestIds};
use apus::mail::Mailer;
use apus::sql::Db;
use apus::{App, ErrorFormat, StartError};

/// What the shop uses outside of itself.
#[derive(Clone, Debug)]
pub struct Services {
    /// The database.
    pub db: Db,
    /// The mails.
    pub mailer: Mailer,
    /// What the links in mails begin with.
    pub public_url: String,
    /// The folder of uploaded pictures.
    pub pictures: PathBuf,
}

/// The application. It runs the migrations of its database, and creates its folder.
///
/// # Errors
/// The database cannot be reached or migrated, or the folder cannot be created.
pub fn app(services: Services) -> Result<App, StartError> {
    std::fs::create_dir_all(&services.pictures)?;
    services.db.migrate(apus::sql::migrations!())?;
    Ok(App::new()
        .layer(RequestIds::new())
        .layer(Logged::new())
        // Clients of the API are programs, whatever they accept.
        .error_format(ErrorFormat::Json)
        .body_limit(64 * 1024)
        .state(services.db.clone())
        .get("/problems/{kind}", problem::explain)
        .group("/users", |users| {
            users
                .get("/", routes::users)
                .post("/", routes::add_user)
                .get("/{id}", routes::user)
                .get("/{id}/orders", routes::orders_of_user)
        })
        .group("/products", |products| {
            products
                .get("/", routes::products)
                .post("/", routes::add_product)
                .get("/{id}", routes::product)
                .post("/{id}/deliveries", routes::take_delivery)
        })
        .group("/orders", |orders| {
            orders
                .post("/", routes::place_order)
                .get("/{id}", routes::order)
        })
        // The pages, for browsers.
        .nest("/", site::group(&services)?))
}
