//! Orders, which take from the stock.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use apus::sql::Db;
use apus::sql::sqlx::any::AnyRow;
use apus::sql::sqlx::{self, AnyConnection, Connection, FromRow, Row};
use serde::{Deserialize, Serialize};

use super::User;

/// An order of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Order {
    /// The id.
    pub id: i64,
    /// The user.
    pub user: i64,
    /// The total price.
    pub total_cents: i64,
    /// The time of the order, in seconds since 1970.
    pub placed_at: i64,
    /// The ordered products. Lists of orders do not contain them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<Line>,
}

/// An ordered product.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The id.
    pub product: i64,
    /// The quantity.
    pub quantity: i64,
    /// The price of one at the time of the order.
    pub price_cents: i64,
}

/// A new order.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewOrder {
    /// The user.
    pub user: i64,
    /// The products to order.
    pub lines: Vec<NewLine>,
}

/// A product in a new order.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewLine {
    /// The id.
    pub product: i64,
    /// The quantity.
    pub quantity: i64,
}

/// Why an order failed.
#[derive(Debug)]
pub enum PlaceError {
    /// The user does not exist.
    NoUser,
    /// The product does not exist.
    NoProduct(i64),
    /// The stock of a product is too small.
    OutOfStock {
        /// The product.
        product: i64,
        /// The quantity in stock.
        left: i64,
    },
    /// The database failed.
    Db(sqlx::Error),
}

impl From<sqlx::Error> for PlaceError {
    fn from(error: sqlx::Error) -> Self {
        Self::Db(error)
    }
}

impl Order {
    /// Places an order and takes all its products from the stock, or nothing.
    ///
    /// # Errors
    /// A product is not in stock, or the database failed.
    pub async fn place(db: &Db, new: &NewOrder) -> Result<Self, PlaceError> {
        // All orders take products in the same order, so that two orders cannot deadlock.
        let mut wanted = BTreeMap::new();
        for line in &new.lines {
            *wanted.entry(line.product).or_insert(0) += line.quantity;
        }
        if User::find(db, new.user).await?.is_none() {
            return Err(PlaceError::NoUser);
        }
        let mut connection = db.acquire().await?;
        let mut transaction = connection.begin().await?;
        match Self::place_in(db, &mut transaction, new.user, wanted).await {
            Ok(order) => {
                transaction.commit().await?;
                Ok(order)
            }
            Err(error) => {
                transaction.rollback().await?;
                Err(error)
            }
        }
    }

    async fn place_in(
        db: &Db,
        connection: &mut AnyConnection,
        user: i64,
        wanted: BTreeMap<i64, i64>,
    ) -> Result<Self, PlaceError> {
        // The first statement writes, so that SQLite waits for the write lock with it. A transaction that
        // reads first could fail because its data is outdated.
        let mut lines = Vec::with_capacity(wanted.len());
        for (product, quantity) in wanted {
            lines.push(take(db, connection, product, quantity).await?);
        }
        let costs = lines.iter().map(|line| line.quantity * line.price_cents);
        let mut order = Self {
            id: 0,
            user,
            total_cents: costs.sum(),
            placed_at: now(),
            lines,
        };
        order.id = sqlx::query_scalar(db.sql(
            "INSERT INTO orders (user_id, total_cents, placed_at) VALUES (?, ?, ?) RETURNING id",
        ))
        .bind(user)
        .bind(order.total_cents)
        .bind(order.placed_at)
        .fetch_one(&mut *connection)
        .await?;
        for line in &order.lines {
            sqlx::query(db.sql(
                "INSERT INTO order_lines (order_id, product_id, quantity, price_cents) \
                 VALUES (?, ?, ?, ?)",
            ))
            .bind(order.id)
            .bind(line.product)
            .bind(line.quantity)
            .bind(line.price_cents)
            .execute(&mut *connection)
            .await?;
        }
        Ok(order)
    }

    /// The order with this id.
    ///
    /// # Errors
    /// The database failed.
    pub async fn find(db: &Db, id: i64) -> sqlx::Result<Option<Self>> {
        let found: Option<Self> = sqlx::query_as(
            db.sql("SELECT id, user_id, total_cents, placed_at FROM orders WHERE id = ?"),
        )
        .bind(id)
        .fetch_optional(db)
        .await?;
        let Some(mut order) = found else {
            return Ok(None);
        };
        order.lines = sqlx::query_as(db.sql(
            "SELECT product_id, quantity, price_cents FROM order_lines WHERE order_id = ? \
             ORDER BY product_id",
        ))
        .bind(id)
        .fetch_all(db)
        .await?;
        Ok(Some(order))
    }

    /// A number of orders of a user after this id, in order, without their products.
    ///
    /// # Errors
    /// The database failed.
    pub async fn list(db: &Db, user: i64, after: i64, limit: i64) -> sqlx::Result<Vec<Self>> {
        sqlx::query_as(db.sql(
            "SELECT id, user_id, total_cents, placed_at FROM orders WHERE user_id = ? AND id > ? \
             ORDER BY id LIMIT ?",
        ))
        .bind(user)
        .bind(after)
        .bind(limit)
        .fetch_all(db)
        .await
    }
}

/// Takes a quantity of a product from the stock, if it has enough. It is one statement, so that no other
/// order can interfere.
async fn take(
    db: &Db,
    connection: &mut AnyConnection,
    product: i64,
    quantity: i64,
) -> Result<Line, PlaceError> {
    let taken =
        sqlx::query(db.sql("UPDATE products SET stock = stock - ? WHERE id = ? AND stock >= ?"))
            .bind(quantity)
            .bind(product)
            .bind(quantity)
            .execute(&mut *connection)
            .await?
            .rows_affected();
    let found: Option<(i64, i64)> =
        sqlx::query_as(db.sql("SELECT stock, price_cents FROM products WHERE id = ?"))
            .bind(product)
            .fetch_optional(connection)
            .await?;
    match found {
        None => Err(PlaceError::NoProduct(product)),
        Some((left, _)) if taken == 0 => Err(PlaceError::OutOfStock { product, left }),
        Some((_, price_cents)) => Ok(Line {
            product,
            quantity,
            price_cents,
        }),
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs().cast_signed())
}

impl FromRow<'_, AnyRow> for Order {
    fn from_row(row: &AnyRow) -> sqlx::Result<Self> {
        Ok(Self {
            id: row.try_get("id")?,
            user: row.try_get("user_id")?,
            total_cents: row.try_get("total_cents")?,
            placed_at: row.try_get("placed_at")?,
            lines: Vec::new(),
        })
    }
}

impl FromRow<'_, AnyRow> for Line {
    fn from_row(row: &AnyRow) -> sqlx::Result<Self> {
        Ok(Self {
            product: row.try_get("product_id")?,
            quantity: row.try_get("quantity")?,
            price_cents: row.try_get("price_cents")?,
        })
    }
}
