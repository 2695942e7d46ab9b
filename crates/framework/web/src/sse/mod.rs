//! Server-Sent Events (HTML Living Standard section 9.2).
//!
//! A future can send the events of one client:
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
//! Or many clients get the same events, also after they reconnect:
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
//! A stream ends between two events when its worker stops, so that the client reconnects to the next
//! process.

mod broadcast;
mod event;
mod last_event_id;
mod response;
mod run;

pub use apus_net::SlowReceivers;

pub use self::broadcast::{Broadcast, BroadcastSettings, Subscription};
pub use self::event::{EncodedEvent, Event};
pub use self::last_event_id::LastEventId;
pub use self::response::Sse;
pub use self::run::Events;
