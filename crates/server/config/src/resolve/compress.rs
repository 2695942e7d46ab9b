//! Compression, of all sites and of one.

use apus_compress::Compression;
use apus_conditions::{Condition, FactKind, FactStage};

use super::conditions::Conditions;
use super::tiny;
use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, ConfigTable};
use crate::raw;
use crate::source::{Setting, SourceSpan};
use crate::when::When;

/// The compression of sites that do not give their own keys.
pub(super) struct CompressDefaults {
    keys: raw::Compress,
    when: Option<Condition>,
}

/// The compression of a site.
pub(super) struct SiteCompression {
    pub(super) compression: Compression,
    pub(super) when: Option<Condition>,
    pub(super) precompressed: bool,
}

impl CompressDefaults {
    /// Of `[global.compress]`.
    pub(super) fn resolve(
        raw: Option<&Setting<raw::Compress>>,
        top: &SourceSpan,
        conditions: &Conditions,
        reader: &mut ConfigReader<'_>,
    ) -> Option<Self> {
        let keys = match raw {
            Some(keys) => keys.value.clone(),
            None => raw::Compress::absent(top, reader)?,
        };
        let when = compile(keys.when.as_ref(), conditions, reader);
        Some(Self { keys, when })
    }

    /// The compression of a site with these keys.
    pub(super) fn of_site(
        &self,
        raw: Option<&Setting<raw::Compress>>,
        conditions: &Conditions,
        reader: &mut ConfigReader<'_>,
    ) -> SiteCompression {
        let of_all = &self.keys;
        let own = raw.map_or(of_all, |own| &own.value);
        let own_when = raw.and_then(|own| own.value.when.as_ref());
        SiteCompression {
            compression: Compression {
                gzip: **own.gzip.or(&of_all.gzip),
                brotli: **own.brotli.or(&of_all.brotli),
                zstd: **own.zstd.or(&of_all.zstd),
                min_length: own.min_length.or(&of_all.min_length).0,
                gzip_level: tiny(own.gzip_level.or(&of_all.gzip_level).0),
                brotli_level: tiny(own.brotli_level.or(&of_all.brotli_level).0),
                zstd_level: tiny(own.zstd_level.or(&of_all.zstd_level).0),
            },
            when: match own_when {
                Some(_) => compile(own_when, conditions, reader),
                None => self.when.clone(),
            },
            precompressed: **own.precompressed.or(&of_all.precompressed),
        }
    }
}

/// The condition for compression. It is asked by whoever chooses a coding: what is known only of complete responses is not known there.
fn compile(
    when: Option<&Setting<When>>,
    conditions: &Conditions,
    reader: &mut ConfigReader<'_>,
) -> Option<Condition> {
    let when = when?;
    let condition = conditions.compile(when, FactStage::Response, reader)?;
    let mut late = None;
    condition.each_fact(&mut |fact| {
        if matches!(
            fact.kind(),
            FactKind::TimeTaken | FactKind::CacheOutcome | FactKind::Upstream
        ) {
            late = Some(fact.kind().name());
        }
    });
    if let Some(fact) = late {
        reader.report(Finding::error(
            &when.span,
            format!("`{fact}` is not known yet when a response is compressed"),
            "expected facts of the request, the user, `status`, `response_type`, `response_length` and `response.NAME`",
        ));
        return None;
    }
    Some(condition)
}
