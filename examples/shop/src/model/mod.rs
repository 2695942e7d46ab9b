//! What the shop is about, and how it is found and kept: all SQL is here.
//!
//! The statements are understood by SQLite, PostgreSQL and MariaDB alike.

mod order;
mod product;
mod user;

pub use order::{Line, NewLine, NewOrder, Order, PlaceError};
pub use product::{NewProduct, Product};
pub use user::{NewUser, User};
