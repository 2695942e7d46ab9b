//! The services for origins: reverse proxies and PHP with their caches, or traces in their place.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use apus_cache::service::{Cache, CacheUnlessBypassed, CachedService};
use apus_client::Tls;
use apus_compress::CompressedFactory;
use apus_http::trace::{self, Step, StepKind};
use apus_http::{
    Request, Response, ResponseFuture, RuleChoice, Service, ServiceFactory, StatusCode,
};
use apus_php::WorkerPools;
use apus_php::handler::Php;
use apus_proxy::{PathForm, Proxy};
use apus_sites::{Location, LocationPattern};
use apus_upstream::Upstreams;
use apus_upstream::plan::GroupPlan;

use super::cache_key_trace::CacheKeyTrace;
use apus_config as config;

/// The services for origins.
#[derive(Clone, Copy, Debug)]
pub enum OriginServices<'a> {
    /// Requests are sent to origins.
    Live {
        /// The groups of origins.
        upstreams: &'a Upstreams,
        /// The cache of their responses.
        cache: Option<&'a Cache>,
        /// The pools of resident PHP workers.
        pools: &'a WorkerPools,
    },
    /// No request is sent; a trace names the origins.
    DryRun,
}

impl OriginServices<'_> {
    /// A location with a reverse proxy.
    pub(super) fn location(
        self,
        pattern: LocationPattern,
        plan: &config::ProxyPlan,
        site: &config::SitePlan,
    ) -> Location {
        let name = format!("reverse_proxy {}", plan.upstream);
        let location = match self {
            Self::Live {
                upstreams, cache, ..
            } => {
                let proxy = Proxy::new(upstreams, &plan.upstream, plan.settings.clone());
                let proxy = plan.choices.iter().fold(proxy, |proxy, choice| {
                    proxy.choice(&choice.upstream, choice.settings.clone())
                });
                match (cache, &plan.cache) {
                    (Some(cache), Some(settings)) => {
                        let inner = proxy.clone();
                        let cached = CachedService::new(cache, &site.name, settings.clone(), proxy)
                            .compression(site.compression);
                        match plan.settings.path_form {
                            PathForm::Normalized => Location::service(pattern, &name, cached),
                            // The key has the normal form, for which the origin might have another response.
                            PathForm::Raw => {
                                let cached = CacheUnlessBypassed::new(cached, inner);
                                Location::service(pattern, &name, cached)
                            }
                        }
                    }
                    _ => Location::service(pattern, &name, proxy),
                }
            }
            Self::DryRun => {
                let choices = plan.choices.iter().map(|choice| choice.upstream.clone());
                let inner = DryRunOrigin {
                    group: plan.upstream.clone(),
                    choices: choices.collect(),
                };
                match &plan.cache {
                    Some(settings) => {
                        let settings = Arc::new(settings.clone());
                        Location::service(pattern, &name, CacheKeyTrace { settings, inner })
                    }
                    None => Location::service(pattern, &name, inner),
                }
            }
        };
        location.allow_encoded_slash().redirect_to_slash()
    }
}

impl OriginServices<'_> {
    /// The service for requests that a layer sends to a group of origins.
    pub(super) fn of_layer(self, handle: &config::OriginHandle) -> Arc<dyn ServiceFactory> {
        let group = handle.group();
        match self {
            Self::Live { upstreams, .. } => {
                Arc::new(Proxy::new(upstreams, group, handle.settings().clone()))
            }
            Self::DryRun => {
                let group = group.to_owned();
                Arc::new(move || DryRunOrigin {
                    group: group.clone(),
                    choices: Vec::new(),
                })
            }
        }
    }

    /// The service that runs PHP scripts.
    pub(super) fn php(self, plan: &config::PhpPlan, site: &config::SitePlan) -> PhpServices {
        let settings = plan.settings.clone();
        match self {
            Self::Live {
                upstreams,
                cache,
                pools,
            } => {
                let mut php = Php::new(upstreams, &plan.upstream, settings);
                if let Some(pool) = plan.workers.as_ref().and_then(|plan| pools.get(plan)) {
                    php = php.with_workers(pool);
                }
                match (cache, &plan.cache) {
                    (Some(cache), Some(caching)) => {
                        let cached =
                            CachedService::new(cache, &site.name, caching.clone(), php.clone())
                                .compression(site.compression);
                        let php = CacheUnlessBypassed::new(cached, php);
                        PhpServices::of(CompressedFactory::new(site.compression, php))
                    }
                    _ => PhpServices::of(CompressedFactory::new(site.compression, php)),
                }
            }
            Self::DryRun => {
                let php = Php::named(&plan.upstream, settings);
                match &plan.cache {
                    Some(caching) => {
                        let keyed = CacheKeyTrace {
                            settings: Arc::new(caching.clone()),
                            inner: php.clone(),
                        };
                        PhpServices::of(CacheUnlessBypassed::new(keyed, php))
                    }
                    None => PhpServices::of(php),
                }
            }
        }
    }
}

/// The service for PHP scripts, with its compression and its cache.
pub(super) struct PhpServices(pub(super) Arc<dyn ServiceFactory>);

impl PhpServices {
    fn of(factory: impl ServiceFactory + 'static) -> Self {
        Self(Arc::new(factory))
    }
}

impl ServiceFactory for PhpServices {
    fn service(&self) -> Rc<dyn Service> {
        self.0.service()
    }
}

/// Notes the group of origins in the trace, and sends no request.
#[derive(Clone)]
struct DryRunOrigin {
    group: String,
    /// The groups that rules may choose instead.
    choices: Vec<String>,
}

impl ServiceFactory for DryRunOrigin {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(self.clone())
    }
}

impl Service for DryRunOrigin {
    fn call(&self, request: Request) -> ResponseFuture {
        trace::note(&request, || {
            let chosen = RuleChoice::of(&request).and_then(RuleChoice::upstream);
            let chosen = chosen.filter(|name| self.choices.iter().any(|known| known == name));
            Step::new(
                StepKind::Origins,
                chosen.unwrap_or(&self.group),
                "no request is sent to them, so their response is unknown",
            )
        });
        Response::new(StatusCode::OK).into()
    }
}

/// The groups of origins of a plan, with TLS for their nodes.
///
/// # Errors
/// TLS cannot be set up, although it could when the plan was resolved.
pub fn groups(plan: &config::ServerPlan) -> io::Result<Vec<GroupPlan>> {
    plan.upstreams.iter().map(group).collect()
}

fn group(upstream: &config::UpstreamPlan) -> io::Result<GroupPlan> {
    let mut group = upstream.group.clone();
    for (node, settings) in group.nodes.iter_mut().zip(&upstream.tls) {
        node.tls = match settings {
            Some(settings) => Some(Tls::new(settings).map_err(io::Error::other)?),
            None => None,
        };
    }
    Ok(group)
}
