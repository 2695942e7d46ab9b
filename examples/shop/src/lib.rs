//! The JSON API of a shop: users, products and orders, on SQLite, PostgreSQL or MariaDB.

#![forbid(unsafe_code)]

pub mod model;
mod page;
mod problem;
mod routes;

use apus::layers::{Logged, RequestIds};
use apus::sql::{Db, DbError};
use apus::{App, ErrorFormat};

/// The application with a database, whose migrations it runs.
///
/// # Errors
/// The database cannot be reached or migrated.
pub fn app(db: Db) -> Result<App, DbError> {
    db.migrate(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations"))?;
    Ok(App::new()
        .layer(RequestIds::new())
        .layer(Logged::new())
        // Clients of the API are programs, whatever they accept.
        .error_format(ErrorFormat::Json)
        .body_limit(64 * 1024)
        .state(db)
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
        }))
}
