//! Maps as a layer, for the conditions, templates and keys of limits further in.

use apus_conditions::RequestMaps;
use apus_handler::{Middleware, Next};
use apus_http::{Request, ResponseFuture};

/// Maps for what is behind this layer: rules, limits by `map.NAME`, and your own code, which finds values by
/// [`RequestMaps::of`]. Sites have theirs by `Site::maps`.
#[derive(Clone, Debug)]
pub struct MapLayer(RequestMaps);

impl MapLayer {
    /// The layer with these maps.
    pub fn new(maps: RequestMaps) -> Self {
        Self(maps)
    }
}

impl Middleware<()> for MapLayer {
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        self.0.attach(&mut request);
        next.call(request)
    }
}
