//! Serves the shop, with the database `./shop.db` or the one in `DATABASE`. Mails are sent by the server in `MAIL`;
//! without it, <http://127.0.0.1:8080/dev/mails/> shows them. `PUBLIC_URL` is what their links begin with.

#![forbid(unsafe_code)]

use std::env;
use std::path::PathBuf;

use apus::StartError;
use apus::mail::Mailer;
use apus::sql::Db;
use apus_example_shop::Services;

fn main() -> Result<(), StartError> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let database = env::var("DATABASE").unwrap_or_else(|_| "sqlite:shop.db".into());
    let address = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".into());
    let mail = env::var("MAIL").unwrap_or_else(|_| "memory:".into());
    let app = apus_example_shop::app(Services {
        db: Db::open(&database)?,
        mailer: Mailer::open(&mail, "The shop <shop@example.com>")?,
        public_url: env::var("PUBLIC_URL").unwrap_or_else(|_| format!("http://{address}")),
        pictures: env::var_os("PICTURES").map_or_else(|| "pictures".into(), PathBuf::from),
    })?;
    println!("http://{address}/");
    app.serve(address)
}
