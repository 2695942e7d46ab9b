//! Serves the shop, with the database `./shop.db` or the one in `DATABASE`.

#![forbid(unsafe_code)]

use std::env;
use std::error::Error;

use apus::sql::Db;

fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let database = env::var("DATABASE").unwrap_or_else(|_| "sqlite:shop.db".into());
    let address = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".into());
    let app = apus_example_shop::app(Db::open(&database)?)?;
    println!("http://{address}/products");
    app.serve(address)?;
    Ok(())
}
