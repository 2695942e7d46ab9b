//! The certificates of files, for the status and the metrics.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use apus_config::{CertificateOrigin, ServerPlan};
use apus_transport::tls::Certificate;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Each file once, as many sites may name the same, with its certificate as it is in use.
pub(crate) fn certificate_files(config: &ServerPlan) -> BTreeMap<&Path, &Certificate> {
    let mut files = BTreeMap::new();
    for site in &config.sites {
        if let (Some(tls), Some(CertificateOrigin::Files(paths))) =
            (&site.tls, &site.certificate_origin)
        {
            let paths = paths.iter().map(AsRef::as_ref);
            files.extend(paths.zip(&tls.certificates));
        }
    }
    files
}

/// The same as JSON, with when they expire.
pub(crate) fn status(config: &ServerPlan) -> Value {
    let now = OffsetDateTime::from(SystemTime::now()).unix_timestamp();
    let files = certificate_files(config);
    let files = files.iter().map(|(file, certificate)| {
        let end = certificate.not_after();
        let written = OffsetDateTime::from_unix_timestamp(end).ok();
        json!({
            "file": file.to_string_lossy(),
            "names": certificate.names(),
            "not_after": written.and_then(|end| end.format(&Rfc3339).ok()),
            "expires_in_seconds": end.saturating_sub(now),
        })
    });
    files.collect()
}
