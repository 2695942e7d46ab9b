//! Upstream groups, for [`Proxy`](crate::proxy::Proxy) and [`Php`](crate::php::Php).
//!
//! ```
//! use apus::proxy::{Proxy, ProxySettings};
//! use apus::upstream::plan::{GroupPlan, NodePlan, NodeTarget};
//! use apus::upstream::{Address, Upstreams};
//! use apus::App;
//!
//! let nodes = ["127.0.0.1:9001", "127.0.0.1:9002"].map(|text| {
//!     let address = Address::Ip(text.parse()?);
//!     Ok(NodePlan::new(text, NodeTarget::Address(address)))
//! });
//! let nodes = nodes.into_iter().collect::<Result<_, std::net::AddrParseError>>()?;
//! let upstreams = Upstreams::new();
//! upstreams.apply(vec![GroupPlan::new("shop", nodes)]);
//! let app = App::new().mount("/shop", Proxy::new(&upstreams, "shop", ProxySettings::default()));
//! # app.check().unwrap();
//! # Ok::<(), std::net::AddrParseError>(())
//! ```

pub use apus_client::{Address, Protocol, ResponseRules, Timeouts, Tls};
pub use apus_upstream::{Upstreams, plan};
