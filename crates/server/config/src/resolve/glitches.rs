//! What clients do wrong: whose glitches are counted, and when connections are refused for them.

use apus_access::GlitchThreshold;

use super::small;
use crate::keys::ConfigReader;
use crate::plan::GlitchPlan;
use crate::raw;
use crate::source::Setting;

/// The plan of glitches.
pub(super) fn plan(
    global: &raw::Global,
    sites: &[Setting<raw::Site>],
    reader: &mut ConfigReader<'_>,
) -> GlitchPlan {
    let keys = global.glitches.table(&global.glitches.span, reader);
    let proxies = sites.iter().flat_map(|site| &site.proxy_protocol_from.0);
    let proxies = global.trusted_proxies.0.iter().chain(proxies);
    GlitchPlan {
        threshold: keys.map(|keys| GlitchThreshold {
            glitches: keys.refuse_above.0,
            load: small(keys.load.0).saturating_mul(100),
        }),
        proxies: proxies.map(|network| network.value.0).collect(),
    }
}
