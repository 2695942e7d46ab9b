//! The origins behind proxies: groups as a plan says, and the services that ask them.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use apus_cache::service::{Cache, CacheUnlessBypassed, Cached};
use apus_compress::Compressed;
use apus_http::trace::{self, Step, StepKind};
use apus_http::{Answer, Request, Response, Service, ServiceFactory, StatusCode};
use apus_net::client::Tls;
use apus_php::Pools;
use apus_php::handler::Php;
use apus_proxy::Proxy;
use apus_sites::{Location, Pattern};
use apus_upstream::Upstreams;
use apus_upstream::plan::GroupPlan;

use super::caching::Keyed;
use apus_config as config;

/// Who answers for proxies.
#[derive(Clone, Copy, Debug)]
pub enum Origins<'a> {
    /// Those of these groups.
    Asked {
        /// The groups.
        upstreams: &'a Upstreams,
        /// Where their answers are stored.
        cache: Option<&'a Cache>,
        /// PHP that stays in memory.
        pools: &'a Pools,
    },
    /// Nobody: it is only told who would.
    Named,
}

impl Origins<'_> {
    /// A location where the origins of a group answer.
    pub(super) fn location(
        self,
        pattern: Pattern,
        said: &config::Proxy,
        site: &config::Site,
    ) -> Location {
        let name = format!("reverse_proxy {}", said.upstream);
        let location = match self {
            Self::Asked {
                upstreams, cache, ..
            } => {
                let proxy = Proxy::new(upstreams, &said.upstream, said.settings.clone());
                match (cache, &said.cache) {
                    (Some(cache), Some(settings)) => {
                        let cached = Cached::new(cache, &site.name, settings.clone(), proxy)
                            .compression(site.compression);
                        Location::service(pattern, &name, cached)
                    }
                    _ => Location::service(pattern, &name, proxy),
                }
            }
            Self::Named => {
                let inner = Unasked(said.upstream.clone());
                match &said.cache {
                    Some(settings) => {
                        let settings = Arc::new(settings.clone());
                        Location::service(pattern, &name, Keyed { settings, inner })
                    }
                    None => Location::service(pattern, &name, inner),
                }
            }
        };
        location.takes_encoded_slash()
    }
}

impl Origins<'_> {
    /// What runs the programs of PHP.
    pub(super) fn programs(self, said: &config::Php, site: &config::Site) -> Programs {
        let settings = said.settings.clone();
        match self {
            Self::Asked {
                upstreams,
                cache,
                pools,
            } => {
                let mut php = Php::new(upstreams, &said.upstream, settings);
                if let Some(pool) = said.workers.as_ref().and_then(|plan| pools.get(plan)) {
                    php = php.with_workers(pool);
                }
                match (cache, &said.cache) {
                    (Some(cache), Some(caching)) => {
                        let cached = Cached::new(cache, &site.name, caching.clone(), php.clone())
                            .compression(site.compression);
                        let php = CacheUnlessBypassed::new(cached, php);
                        Programs::of(Compressed::new(site.compression, php))
                    }
                    _ => Programs::of(Compressed::new(site.compression, php)),
                }
            }
            Self::Named => {
                let php = Php::named(&said.upstream, settings);
                match &said.cache {
                    Some(caching) => {
                        let keyed = Keyed {
                            settings: Arc::new(caching.clone()),
                            inner: php.clone(),
                        };
                        Programs::of(CacheUnlessBypassed::new(keyed, php))
                    }
                    None => Programs::of(php),
                }
            }
        }
    }
}

/// What runs programs, with what stands in front of it.
pub(super) struct Programs(pub(super) Arc<dyn ServiceFactory>);

impl Programs {
    fn of(factory: impl ServiceFactory + 'static) -> Self {
        Self(Arc::new(factory))
    }
}

impl ServiceFactory for Programs {
    fn service(&self) -> Rc<dyn Service> {
        self.0.service()
    }
}

/// Stands for a group that is not asked.
struct Unasked(String);

impl ServiceFactory for Unasked {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(Self(self.0.clone()))
    }
}

impl Service for Unasked {
    fn call(&self, request: Request) -> Answer {
        trace::note(&request, || {
            Step::new(
                StepKind::Origins,
                &*self.0,
                "what they answer is not known here",
            )
        });
        Response::new(StatusCode::OK).into()
    }
}

/// The groups of origins of a plan, with the TLS of their nodes.
///
/// # Errors
/// TLS cannot be made ready, though it could when the plan was made.
pub fn groups(plan: &config::Plan) -> io::Result<Vec<GroupPlan>> {
    plan.upstreams.iter().map(group).collect()
}

fn group(upstream: &config::Upstream) -> io::Result<GroupPlan> {
    let mut group = upstream.group.clone();
    for (node, settings) in group.nodes.iter_mut().zip(&upstream.tls) {
        node.tls = match settings {
            Some(settings) => Some(Tls::new(settings).map_err(io::Error::other)?),
            None => None,
        };
    }
    Ok(group)
}
