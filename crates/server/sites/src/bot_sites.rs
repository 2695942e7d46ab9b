//! `BotSites`: sites that know which bot a request is from.

use std::rc::Rc;

use apus_http::{Request, ResponseFuture, Service};
use apus_layers::Bots;

use crate::{Sites, SitesService, fresh_identity};

/// The sites of a server that knows bots. They are around the other sites, so that those cost nothing more without bots.
struct BotSites {
    bots: Bots,
    sites: Rc<SitesService>,
}

impl Sites {
    /// Finds out which of these bots a request is from, before anything else is decided about it.
    #[must_use]
    pub fn bots(mut self, bots: Bots) -> Self {
        self.bots = Some(bots);
        self.identity = fresh_identity();
        self
    }

    pub(crate) fn behind_bots(&self, sites: Rc<SitesService>) -> Rc<dyn Service> {
        match &self.bots {
            None => sites,
            Some(bots) => Rc::new(BotSites {
                bots: bots.clone(),
                sites,
            }),
        }
    }
}

impl Service for BotSites {
    fn call(&self, mut request: Request) -> ResponseFuture {
        if let Some(refusal) = self.sites.admit(&mut request) {
            return refusal.into();
        }
        match self.bots.identify(&mut request) {
            None => self.sites.select(request),
            Some(wait) => {
                let (bots, sites) = (self.bots.clone(), Rc::clone(&self.sites));
                ResponseFuture::later(async move {
                    wait.end().await;
                    bots.conclude(&mut request);
                    sites.select(request).wait().await
                })
            }
        }
    }
}
