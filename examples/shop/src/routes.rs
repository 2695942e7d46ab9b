//! The routes and their handlers.

use apus::sql::Db;
use apus::{Error, IntoResponse, Json, OrNotFound, Path, Query, Result, State, StatusCode};
use serde::{Deserialize, Serialize};

use crate::model::{NewOrder, NewProduct, NewUser, Order, PlaceError, Product, User};
use crate::page::{Page, PageQuery};
use crate::problem::Checks;

const MAX_CENTS: i64 = 100_000_000;
const MAX_QUANTITY: i64 = 10_000;
const MAX_LINES: usize = 100;

pub(crate) async fn users(
    State(db): State<Db>,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<User>>> {
    let read = async |after, limit| User::list(&db, after, limit).await;
    let page = page.of("/users", |user: &User| user.id, read);
    Ok(Json(page.await?))
}

pub(crate) async fn user(State(db): State<Db>, Path(id): Path<i64>) -> Result<Json<User>> {
    found(User::find(&db, id).await?, "user", id)
}

pub(crate) async fn add_user(
    State(db): State<Db>,
    Json(mut new): Json<NewUser>,
) -> Result<impl IntoResponse + use<>> {
    new.name = new.name.trim().to_owned();
    new.email = new.email.trim().to_owned();
    Checks::default()
        .need(
            (1..=100).contains(&new.name.chars().count()),
            "/name",
            "it has 1 to 100 characters",
        )
        .need(
            is_email(&new.email),
            "/email",
            "it is an email address of at most 200 characters",
        )
        .finish()?;
    let Some(user) = User::add(&db, new).await? else {
        return Err(Error::of(StatusCode::CONFLICT)
            .kind("/problems/email-taken")
            .title("Another user has this email address"));
    };
    Ok(created(format!("/users/{}", user.id), user))
}

pub(crate) async fn orders_of_user(
    State(db): State<Db>,
    Path(id): Path<i64>,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<Order>>> {
    found(User::find(&db, id).await?, "user", id)?;
    let read = async |after, limit| Order::list(&db, id, after, limit).await;
    let path = format!("/users/{id}/orders");
    let page = page.of(&path, |order: &Order| order.id, read);
    Ok(Json(page.await?))
}

pub(crate) async fn products(
    State(db): State<Db>,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<Product>>> {
    let read = async |after, limit| Product::list(&db, after, limit).await;
    let page = page.of("/products", |product: &Product| product.id, read);
    Ok(Json(page.await?))
}

pub(crate) async fn product(State(db): State<Db>, Path(id): Path<i64>) -> Result<Json<Product>> {
    found(Product::find(&db, id).await?, "product", id)
}

pub(crate) async fn add_product(
    State(db): State<Db>,
    Json(mut new): Json<NewProduct>,
) -> Result<impl IntoResponse + use<>> {
    new.name = new.name.trim().to_owned();
    Checks::default()
        .need(
            (1..=100).contains(&new.name.chars().count()),
            "/name",
            "it has 1 to 100 characters",
        )
        .need(
            (0..=MAX_CENTS).contains(&new.price_cents),
            "/price_cents",
            "it is from 0 to 100000000",
        )
        .need(
            (0..=MAX_QUANTITY).contains(&new.stock),
            "/stock",
            "it is from 0 to 10000",
        )
        .finish()?;
    let product = Product::add(&db, new).await?;
    Ok(created(format!("/products/{}", product.id), product))
}

/// A delivery of a product.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Delivery {
    quantity: i64,
}

pub(crate) async fn take_delivery(
    State(db): State<Db>,
    Path(id): Path<i64>,
    Json(delivery): Json<Delivery>,
) -> Result<Json<Product>> {
    Checks::default()
        .need(
            (1..=MAX_QUANTITY).contains(&delivery.quantity),
            "/quantity",
            "it is from 1 to 10000",
        )
        .finish()?;
    found(
        Product::deliver(&db, id, delivery.quantity).await?,
        "product",
        id,
    )
}

pub(crate) async fn place_order(
    State(db): State<Db>,
    Json(new): Json<NewOrder>,
) -> Result<impl IntoResponse + use<>> {
    let mut checks = Checks::default().need(
        (1..=MAX_LINES).contains(&new.lines.len()),
        "/lines",
        "there are from 1 to 100",
    );
    for (index, line) in new.lines.iter().enumerate() {
        checks = checks.need(
            (1..=MAX_QUANTITY).contains(&line.quantity),
            format!("/lines/{index}/quantity"),
            "it is from 1 to 10000",
        );
    }
    checks.finish()?;
    let order = Order::place(&db, &new)
        .await
        .map_err(|error| not_placed(error, &new))?;
    Ok(created(format!("/orders/{}", order.id), order))
}

pub(crate) async fn order(State(db): State<Db>, Path(id): Path<i64>) -> Result<Json<Order>> {
    found(Order::find(&db, id).await?, "order", id)
}

/// The response to an order that failed.
fn not_placed(error: PlaceError, new: &NewOrder) -> Error {
    let invalid = |pointer: String, detail| {
        let checks = Checks::default().need(false, pointer, detail);
        checks.into_error()
    };
    match error {
        PlaceError::NoUser => invalid("/user".into(), "there is no such user"),
        PlaceError::NoProduct(id) => {
            let mut lines = new.lines.iter();
            let index = lines.position(|line| line.product == id).unwrap_or(0);
            let pointer = format!("/lines/{index}/product");
            invalid(pointer, "there is no such product")
        }
        PlaceError::OutOfStock { product, left } => Error::of(StatusCode::CONFLICT)
            .kind("/problems/out-of-stock")
            .title("There is not as much of a product")
            .with("product", product)
            .with("left", left),
        PlaceError::Db(error) => error.into(),
    }
}

/// The value, or a 404 that names what does not exist.
fn found<T>(value: Option<T>, what: &str, id: i64) -> Result<Json<T>> {
    let missing = format_args!("there is no {what} {id}");
    value.map(Json).or_not_found(missing)
}

/// 201 with the new entry and its `Location`.
fn created<T: Serialize>(address: String, made: T) -> impl IntoResponse + use<T> {
    (StatusCode::CREATED, [("location", address)], Json(made))
}

/// Whether a text looks like an email address.
fn is_email(text: &str) -> bool {
    let is_shown = |c: char| !c.is_whitespace() && !c.is_control();
    let parts = text.split_once('@');
    text.len() <= 200
        && text.chars().all(is_shown)
        && parts.is_some_and(|(name, host)| {
            !name.is_empty() && host.contains('.') && !host.starts_with('.') && !host.contains('@')
        })
}
