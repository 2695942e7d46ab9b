//! Sessions: values that an application keeps for a visitor between requests.
//!
//! [`Sessions`] is a layer, [`Session`] what a handler takes. Where the values are kept is said by
//! what the layer is made of: [`EncryptedCookie`] or [`SignedCookie`] (with the visitor, nothing on
//! the server), [`MemoryStore`], `SqlStore` (feature `sql`), `RedisStore` (feature `redis`), or a
//! [`SessionStore`] of your own.
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
//! # What it costs
//!
//! A request without a session asks no store, and neither does one whose handler reads nothing of
//! it. Nothing is written where nothing changed; that a session is in use is noted once in a tenth
//! of its idle time.
//!
//! # Requests at the same time
//!
//! What a request changes are single values, and they are written when its response is ready. If
//! another request of the same session was faster, the changes are made again to what it left:
//! values that only one of them changed are all kept, and of a value that both changed the later
//! write stays. A session that was ended meanwhile stays ended, and what others wanted to change of
//! it is lost with it. None of this holds for sessions in a cookie, which nobody but the browser
//! keeps: there the response that arrives last wins, with all its values.
//!
//! # How it is protected
//!
//! The cookie is `HttpOnly`, `SameSite=Lax`, and over TLS `Secure` with the name prefix `__Host-`,
//! so that no other host can set it (RFC 6265bis section 4.1.3). It holds 256 random bits, of which
//! stores get to see a digest only: who can read the store can take over no session. An id that the
//! server did not give out is never taken. [`Session::renew`] changes the id, and has to be called
//! when somebody logs in; else an attacker who planted an id of his own would be logged in, too.

mod cookie;
mod handle;
mod id;
mod layer;
mod memory;
#[cfg(feature = "redis")]
mod redis;
mod sealed;
#[cfg(feature = "sql")]
mod sql;
mod state;
mod store;
mod write;

pub use apus_layers::auth::KeyError;
pub use handle::{Session, SessionError};
pub use id::SessionKey;
pub use layer::Sessions;
pub use memory::MemoryStore;
#[cfg(feature = "redis")]
pub use redis::RedisStore;
pub use sealed::{EncryptedCookie, Key, SignedCookie};
#[cfg(feature = "sql")]
pub use sql::SqlStore;
pub use store::{
    SessionBackend, SessionStore, SessionWrite, StoreError, StoreFuture, StoredSession,
};

pub(crate) use cookie::CookieText;

/// The name of the value that forged requests are told by.
pub(crate) const TOKEN: &str = "~csrf";
