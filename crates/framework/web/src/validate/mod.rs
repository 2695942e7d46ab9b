//! Arguments with rules: `Valid<Json<T>>`, `Valid<Form<T>>` and `Valid<Query<T>>`.
//!
//! ```
//! use apus::testing::TestClient;
//! use apus::{App, Json, Valid};
//! use garde::Validate;
//! use serde::Deserialize;
//! use serde_json::json;
//!
//! #[derive(Deserialize, Validate)]
//! struct Order {
//!     #[garde(length(chars, min = 2, max = 40))]
//!     product: String,
//!     #[garde(range(min = 1, max = 100))]
//!     count: u32,
//! }
//!
//! async fn order(Valid(Json(order)): Valid<Json<Order>>) -> String {
//!     format!("{} {}", order.count, order.product)
//! }
//!
//! let client = TestClient::new(App::new().post("/orders", order));
//! client.post("/orders").json(&json!({ "product": "quills", "count": 2 })).send().assert_ok();
//! let mut refused = client.post("/orders").json(&json!({ "product": "q", "count": 0 })).send();
//! refused.assert_status(422).assert_header("content-type", "application/problem+json");
//! let problem: serde_json::Value = refused.json();
//! assert_eq!(problem["errors"]["product"], json!(["length is lower than 2"]));
//! assert_eq!(problem["errors"]["count"], json!(["lower than 1"]));
//! ```
//!
//! The crate [garde] has the rules. It is a dependency of the application beside serde. It has a rule for each field,
//! also `#[garde(skip)]`. A path of a field is written as `items[0].count`, and the path of the whole value is empty.
//! The names are those that clients send, by any convention of `#[serde(rename_all = "camelCase")]`; a field that is
//! renamed to another word has its name in Rust. schemars reads the rules too, so the schema of an OpenAPI description
//! has them.
//!
//! A value that serde cannot read is reported by itself, because no rule can be checked then.
//!
//! [`InvalidFields`] is the response: 422 with problem details (RFC 9457) for programs, and text or a page for other
//! clients. A handler that takes `Result<Valid<Form<T>>, InvalidFields>` can show the form again, see [`FormState`].
//! [`ValidationMessages`] translates the messages.

mod argument;
mod field_names;
mod form_state;
mod invalid_fields;
mod messages;

pub use argument::Valid;
pub use form_state::FormState;
pub use garde;
pub use invalid_fields::InvalidFields;
pub use messages::{FieldMessages, ValidationMessages};
