//! Serves the example on 127.0.0.1:8080, with its database in the file `login.db` unless `DATABASE`
//! names another: `DATABASE=postgres://user:password@host/name`. `login db status` shows its migrations.

#![forbid(unsafe_code)]

use apus::StartError;
use apus::sql::Db;

fn main() -> Result<(), StartError> {
    let address = std::env::var("DATABASE").unwrap_or_else(|_| "sqlite:login.db".to_owned());
    let db: Db = Db::open(&address)?;
    db.commands(login::MIGRATIONS).handle_arguments();
    let app = login::app(db)?;
    println!("http://127.0.0.1:8080");
    app.serve("127.0.0.1:8080")
}
