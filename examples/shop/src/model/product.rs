//! Products and their stock.

use apus::sql::Db;
use apus::sql::sqlx::any::AnyRow;
use apus::sql::sqlx::{self, FromRow, Row};
use serde::{Deserialize, Serialize};

/// A product.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Product {
    /// The id.
    pub id: i64,
    /// The name.
    pub name: String,
    /// The price of one.
    pub price_cents: i64,
    /// The quantity in stock, never below zero.
    pub stock: i64,
}

/// A new product.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewProduct {
    /// See [`Product::name`].
    pub name: String,
    /// See [`Product::price_cents`].
    pub price_cents: i64,
    /// See [`Product::stock`].
    #[serde(default)]
    pub stock: i64,
}

impl Product {
    /// The product with this id.
    ///
    /// # Errors
    /// The database failed.
    pub async fn find(db: &Db, id: i64) -> sqlx::Result<Option<Self>> {
        sqlx::query_as(db.sql("SELECT id, name, price_cents, stock FROM products WHERE id = ?"))
            .bind(id)
            .fetch_optional(db)
            .await
    }

    /// A number of products after this id, in order.
    ///
    /// # Errors
    /// The database failed.
    pub async fn list(db: &Db, after: i64, limit: i64) -> sqlx::Result<Vec<Self>> {
        sqlx::query_as(db.sql(
            "SELECT id, name, price_cents, stock FROM products WHERE id > ? ORDER BY id LIMIT ?",
        ))
        .bind(after)
        .bind(limit)
        .fetch_all(db)
        .await
    }

    /// Adds a product.
    ///
    /// # Errors
    /// The database failed.
    pub async fn add(db: &Db, new: NewProduct) -> sqlx::Result<Self> {
        let id = sqlx::query_scalar(
            db.sql("INSERT INTO products (name, price_cents, stock) VALUES (?, ?, ?) RETURNING id"),
        )
        .bind(&new.name)
        .bind(new.price_cents)
        .bind(new.stock)
        .fetch_one(db)
        .await?;
        Ok(Self {
            id,
            name: new.name,
            price_cents: new.price_cents,
            stock: new.stock,
        })
    }

    /// Adds to the stock of a product, also while orders take from it. Returns `None` if the product does not
    /// exist.
    ///
    /// # Errors
    /// The database failed.
    pub async fn deliver(db: &Db, id: i64, quantity: i64) -> sqlx::Result<Option<Self>> {
        sqlx::query(db.sql("UPDATE products SET stock = stock + ? WHERE id = ?"))
            .bind(quantity)
            .bind(id)
            .execute(db)
            .await?;
        Self::find(db, id).await
    }
}

impl FromRow<'_, AnyRow> for Product {
    fn from_row(row: &AnyRow) -> sqlx::Result<Self> {
        Ok(Self {
            id: row.try_get("id")?,
            name: row.try_get("name")?,
            price_cents: row.try_get("price_cents")?,
            stock: row.try_get("stock")?,
        })
    }
}
