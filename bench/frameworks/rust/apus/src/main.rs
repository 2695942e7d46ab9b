//! The application with Apus: `bench-apus PORT [DATABASE]`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::Ipv4Addr;
use std::num::NonZeroUsize;

use apus::sql::{Db, MySql};
use apus::template::{Page, Renderer, Templates, context};
use apus::{
    App, Extension, HeaderName, HeaderValue, Json, Path, Request, Response, Server, State,
    StatusCode, Valid, get, post, routes,
};
use garde::Validate;
use serde::{Deserialize, Serialize};

/// What the client reads, as a layer finds out.
#[derive(Clone, Copy)]
struct Language(&'static str);

fn language(request: &mut Request) -> Result<(), Response> {
    let accepted = request.headers().get_str("accept-language").unwrap_or("");
    let language = if accepted.starts_with("zh") {
        "zh"
    } else {
        "en"
    };
    request.extensions_mut().insert(Language(language));
    Ok(())
}

static SERVED_BY: HeaderName = HeaderName::from_static("x-served-by");

fn served_by(response: &mut Response) {
    response
        .headers_mut()
        .insert(&SERVED_BY, &HeaderValue::from_static("bench"));
}

#[get("/hello/{name}")]
fn hello(Extension(language): Extension<Language>, Path(name): Path<String>) -> String {
    match language {
        Language("zh") => format!("你好，{name}！"),
        _ => format!("Hello, {name}!"),
    }
}

#[derive(Serialize)]
struct Swift {
    id: u32,
    name: &'static str,
    language: &'static str,
}

#[get("/json/{id}")]
fn json(Extension(Language(language)): Extension<Language>, Path(id): Path<u32>) -> Json<Swift> {
    Json(Swift {
        id,
        name: "Apus apus",
        language,
    })
}

#[derive(Deserialize, Validate)]
struct Order {
    #[garde(length(chars, min = 1, max = 80))]
    customer: String,
    #[garde(email, length(max = 254))]
    email: String,
    #[garde(length(min = 1, max = 20), dive)]
    items: Vec<Item>,
}

#[derive(Deserialize, Validate)]
struct Item {
    #[garde(length(min = 1, max = 40), ascii)]
    product: String,
    #[garde(range(min = 1, max = 100))]
    quantity: u32,
    #[garde(range(min = 1, max = 1_000_000))]
    cents: u64,
}

#[derive(Serialize)]
struct Receipt {
    customer: String,
    email: String,
    products: Vec<String>,
    cents: u64,
    language: &'static str,
}

impl Receipt {
    fn new(order: Order, language: &'static str) -> Self {
        let items = order.items.iter();
        Self {
            cents: items.map(|item| u64::from(item.quantity) * item.cents).sum(),
            customer: order.customer,
            email: order.email,
            products: order.items.into_iter().map(|item| item.product).collect(),
            language,
        }
    }
}

#[post("/orders")]
fn order(
    Extension(Language(language)): Extension<Language>,
    Valid(Json(order)): Valid<Json<Order>>,
) -> Json<Receipt> {
    Json(Receipt::new(order, language))
}

#[derive(Serialize, sqlx::FromRow)]
struct User {
    id: i64,
    name: String,
    email: String,
    joined: String,
}

#[get("/users/{id}")]
async fn user(
    State(db): State<Db<MySql>>,
    renderer: Renderer,
    Extension(Language(language)): Extension<Language>,
    Path(id): Path<i64>,
) -> apus::Result<Page> {
    let user: Option<User> =
        sqlx::query_as("SELECT id, name, email, joined FROM users WHERE id = ?")
            .bind(id)
            .fetch_optional(&db)
            .await?;
    let user =
        user.ok_or_else(|| apus::Error::new(StatusCode::NOT_FOUND, "there is no such user"))?;
    Ok(renderer.page("user.html", context! { user, language }))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments
        .next()
        .ok_or("bench-apus PORT [DATABASE]")?
        .parse()?;
    let mut app = App::new()
        .before(language)
        .after(served_by)
        .register(routes![hello, json, order]);
    if let Some(database) = arguments.next() {
        let templates = Templates::embedded([
            ("layout.html", include_str!("../../views/layout.html")),
            ("user.html", include_str!("../../views/user.html")),
        ]);
        let database: Db<MySql> = Db::open(&database)?;
        app = app
            .state(database)
            .state(templates.load()?)
            .register(routes![user]);
    }
    app.check()?;
    Server::new(app)
        .workers(NonZeroUsize::MIN)
        .listen((Ipv4Addr::LOCALHOST, port))?
        .run()?;
    Ok(())
}
