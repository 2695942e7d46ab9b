//! Server-Sent Events (HTML Living Standard section 9.2).
//!
//! Events can be told by a future of the client's own:
//!
//! ```
//! use std::time::Duration;
//! use apus::{App, Sse};
//!
//! async fn clock() -> Sse {
//!     Sse::run(async |mut events| {
//!         for second in 0_u64.. {
//!             events.send(second.to_string()).await;
//!             tokio::time::sleep(Duration::from_secs(1)).await;
//!         }
//!     })
//! }
//!
//! let app = App::new().get("/clock", clock);
//! # app.check().unwrap();
//! ```
//!
//! Or they are the same for many clients, who may lose their connections and miss nothing:
//!
//! ```
//! use apus::sse::{Broadcast, Event, LastEventId};
//! use apus::{App, Sse, State};
//!
//! async fn follow(State(prices): State<Broadcast>, last: LastEventId) -> Sse {
//!     Sse::new(prices.subscribe(&last))
//! }
//!
//! let prices = Broadcast::default();
//! let app = App::new().get("/prices", follow).state(prices.clone());
//! # app.check().unwrap();
//! // From any thread:
//! prices.publish(Event::new().event("price").data("gold 71.20"));
//! ```
//!
//! A stream ends when its worker stops, between two events, so that the client comes back to the process that
//! follows.

mod broadcast;
mod event;
mod last_event_id;
mod response;
mod run;

pub use self::broadcast::{Broadcast, BroadcastSettings, Subscription};
pub use self::event::{EncodedEvent, Event};
pub use self::last_event_id::LastEventId;
pub use self::response::Sse;
pub use self::run::Events;
