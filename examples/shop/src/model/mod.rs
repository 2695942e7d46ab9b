//! The data of the shop, and all its SQL, which is valid for SQLite, PostgreSQL and MariaDB.

mod order;
mod product;
mod user;

pub use order::{Line, NewLine, NewOrder, Order, PlaceError};
pub use product::{NewProduct, Product};
pub use user::{NewUser, User};
