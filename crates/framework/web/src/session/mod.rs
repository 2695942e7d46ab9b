//! Sessions: values that an application keeps for a visitor between requests.
//!
//! [`Sessions`] is the layer, and [`Session`] the extractor. The argument of the layer decides where values
//! are kept: [`EncryptedCookie`] or [`SignedCookie`] (in the browser, nothing on the server),
//! [`MemoryStore`], `SqlStore` (feature `sql`), `RedisStore` (feature `redis`), or your own
//! [`SessionStore`].
//!
//! ```
//! use apus::session::{MemoryStore, Session, Sessions};
//! use apus::App;
//!
//! async fn count(session: Session) -> apus::Result<String> {
//!     let visits = session.get::<u32>("visits").await?.unwrap_or(0) + 1;
//!     session.insert("visits", visits)?;
//!     Ok(format!("visit {visits}\n"))
//! }
//!
//! let app = App::new()
//!     .layer(Sessions::new(MemoryStore::new()))
//!     .get("/", count);
//! # app.check().unwrap();
//! ```
//!
//! # Users and roles
//!
//! An extractor that waits finds the user of a session, once for each request; another one is a user with a role:
//!
//! ```
//! use apus::extract::{AsyncExtractor, Require};
//! use apus::session::{MemoryStore, Session, Sessions};
//! use apus::testing::TestClient;
//! use apus::{App, Error, State, StatusCode};
//!
//! #[derive(Clone)]
//! struct Users; // a database
//!
//! impl Users {
//!     async fn find(&self, id: u32) -> Option<CurrentUser> {
//!         Some(CurrentUser { id, is_admin: id == 1 })
//!     }
//! }
//!
//! #[derive(Clone)]
//! struct CurrentUser {
//!     id: u32,
//!     is_admin: bool,
//! }
//!
//! impl AsyncExtractor for CurrentUser {
//!     type Arguments = (Session, State<Users>);
//!     type Rejection = Error;
//!
//!     async fn extract((session, State(users)): Self::Arguments) -> Result<Self, Error> {
//!         let id = session.get("user").await?;
//!         let id = id.ok_or_else(|| Error::of(StatusCode::UNAUTHORIZED))?;
//!         users.find(id).await.ok_or_else(|| Error::of(StatusCode::UNAUTHORIZED))
//!     }
//! }
//!
//! /// A user with a role.
//! #[derive(Clone)]
//! struct Admin(CurrentUser);
//!
//! impl AsyncExtractor for Admin {
//!     type Arguments = CurrentUser;
//!     type Rejection = Error;
//!
//!     async fn extract(user: CurrentUser) -> Result<Self, Error> {
//!         if user.is_admin {
//!             Ok(Self(user))
//!         } else {
//!             Err(Error::forbidden("this is for administrators"))
//!         }
//!     }
//! }
//!
//! let app = App::new()
//!     .layer(Sessions::new(MemoryStore::new()))
//!     .state(Users)
//!     .post("/login", async |session: Session, id: String| session.insert("user", id.len()))
//!     .get("/", async |user: Option<CurrentUser>| match user {
//!         Some(user) => format!("user {}", user.id),
//!         None => "a visitor".to_owned(),
//!     })
//!     .get("/settings", async |Admin(user): Admin| format!("admin {}", user.id))
//!     .group("/admin", |admin| {
//!         admin
//!             .layer(Require::<Admin>::new())
//!             .get("/", async |user: CurrentUser| format!("admin {}", user.id))
//!     });
//!
//! let client = TestClient::new(app);
//! client.get("/").send().assert_text("a visitor");
//! client.get("/settings").send().assert_status(401);
//! client.post("/login").body("22").send();
//! client.get("/").send().assert_text("user 2");
//! client.get("/admin").send().assert_status(403);
//! client.post("/login").body("1").send();
//! client.get("/admin").send().assert_text("admin 1");
//! ```
//!
//! # Costs
//!
//! A request without a session does not use the store, and neither does a request whose handler does not
//! read the session. An unchanged session is not written; the time of its last use is updated once in a
//! tenth of its idle time.
//!
//! # Concurrent requests
//!
//! A request changes single values, which are written when its response is ready. If another request of
//! the same session wrote first, the changes are applied to the new version: values that only one request
//! changed are all kept, and for a value that both changed the later write wins. A session that was ended
//! meanwhile stays ended, and the changes of other requests are lost. A session in a cookie has no versions:
//! there the last response wins with all its values.
//!
//! # Visitors who are not logged in
//!
//! Whoever requests a page with a form is a visitor, also a program that keeps no cookies and requests it a million times. The
//! values that the framework keeps for visitors (the secret of forms, flash values, the state of a form) are in the cookie then, signed,
//! unless they do not fit: a visitor without values of the application has no entry in a store. Values of the application begin an
//! entry. A store that is full removes the entries of visitors first, and never the entry of a user for the entry of a visitor. A
//! visitor becomes a user by [`Session::renew`].
//!
//! # Security
//!
//! The cookie is `HttpOnly`, `SameSite=Lax`, and over TLS `Secure` with the name prefix `__Host-`, so that no
//! other host can set it (RFC 6265bis section 4.1.3). It contains 256 random bits, of which the store keeps
//! only a digest: reading the store does not reveal session ids. The server does not accept ids that it did
//! not create. Call [`Session::renew`] on log-in to change the id; otherwise an attacker who planted an id
//! would be logged in as well (session fixation).

mod cookie;
mod error;
mod flash;
mod handle;
mod id;
mod layer;
mod memory;
#[cfg(feature = "redis")]
mod redis;
mod sealed;
mod settings;
#[cfg(feature = "sql")]
mod sql;
mod state;
mod store;
mod write;

pub use apus_layers::auth::{Key, KeyError};
pub use error::{SessionError, StoreError};
pub use flash::{Flash, FlashMessage};
pub use handle::Session;
#[cfg(feature = "validate")]
pub(crate) use handle::normal_path;
pub use id::SessionKey;
pub use layer::Sessions;
pub use memory::MemoryStore;
#[cfg(feature = "redis")]
pub use redis::RedisStore;
pub use sealed::{EncryptedCookie, SignedCookie};
#[cfg(feature = "sql")]
pub use sql::SqlStore;
pub use store::{SessionBackend, SessionStore, SessionWrite, StoreFuture, StoredSession};

pub(crate) use cookie::CookieText;

/// The name of the value with the CSRF secret.
pub(crate) const TOKEN: &str = "~csrf";
