//! Authentication (RFC 9110 section 11), passwords, and the defence against forged requests.
//!
//! | what | how |
//! | --- | --- |
//! | [`BasicAuth`] | a layer: name and password with every request (RFC 7617) |
//! | [`BearerAuth`] | a layer: a token, which your function looks up (RFC 6750) |
//! | `JwtAuth` (feature `jwt`) | a layer: a signed token with claims about its owner (RFC 7519) |
//! | [`Csrf`] | a layer: forms and scripts of other sites cannot act for a visitor |
//! | [`SignedUrls`] | a layer: links that only the application can make, and that may expire |
//! | `password` (feature `password`) | passwords to store, and to compare with |
//!
//! A visitor who logs in by a form gets a [session](crate::session).
//!
//! ```
//! use std::time::Duration;
//!
//! use apus::auth::{BasicAuth, BasicUser, SignedUrls};
//! use apus::session::Key;
//! use apus::testing::TestClient;
//! use apus::{App, HandlerExt, Path};
//!
//! let urls = SignedUrls::new(&Key::new("a secret of at least thirty-two bytes")?);
//! let link = urls.sign_for("/invitations/7?from=ada", Duration::from_secs(3600));
//!
//! async fn status(BasicUser(name): BasicUser) -> String {
//!     format!("hello {name}\n")
//! }
//!
//! let app = App::new()
//!     .get("/status", status.with(BasicAuth::user("status", "admin", "correct horse")))
//!     .group("/invitations", |group| {
//!         group.layer(urls).get("/{id}", async |Path(id): Path<u32>| format!("invitation {id}"))
//!     });
//!
//! let client = TestClient::new(app);
//! client.get("/status").send().assert_status(401);
//! client.get("/status").basic("admin", "correct horse").send().assert_text("hello admin\n");
//! client.get(&link).send().assert_text("invitation 7");
//! client.get(&link.replace('7', "8")).send().assert_status(403);
//! client.get("/invitations/7").send().assert_status(403);
//! # Ok::<(), apus::session::KeyError>(())
//! ```

mod csrf;

pub use apus_layers::auth::*;
pub use csrf::{Csrf, CsrfToken};
