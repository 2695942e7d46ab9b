//! The kind of a location's handler, and keys that do not belong to it.

use super::files;
use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::raw::{Handler, Location, LocationKeys};
use crate::source::{Setting, SourceSpan};

/// The kind of the location's handler, or `None` after a key without effect was reported.
pub(super) fn of(
    location: &Setting<Location>,
    site: &LocationKeys,
    reader: &mut ConfigReader<'_>,
) -> Option<Handler> {
    let own = &location.keys;
    let php = own.php_fastcgi.as_ref().map(|key| &key.span);
    let php = php.or(own.fastcgi.as_ref().map(|key| &key.span));
    let (kind, why) = match (&location.handler, &own.r#return, &own.upstream, php) {
        (Some(handler), ..) => (handler.value, Some(&handler.span)),
        (None, Some(keys), ..) => (Handler::Return, Some(&keys.span)),
        (None, None, Some(upstream), _) => (Handler::ReverseProxy, Some(&upstream.span)),
        (None, None, None, Some(php)) => (Handler::Fastcgi, Some(php)),
        (None, None, None, None) => {
            let has_folder = location.alias.is_some()
                || own.root.is_some()
                || reader.has_wrong(&location.span, &["root", "alias"]);
            match (&site.upstream, &site.php_fastcgi) {
                _ if has_folder => (Handler::Static, None),
                (Some(upstream), _) => (Handler::ReverseProxy, Some(&upstream.span)),
                (None, Some(php)) => (Handler::Fastcgi, Some(&php.span)),
                (None, None) => (Handler::Static, None),
            }
        }
    };
    let mut others: Vec<(&str, &SourceSpan)> = Vec::new();
    if let Some(keys) = own.r#return.as_ref().filter(|_| kind != Handler::Return) {
        others.push(("return", &keys.span));
    }
    if kind != Handler::ReverseProxy {
        others.extend(own.upstream.as_ref().map(|key| ("upstream", &key.span)));
        others.extend(own.proxy.as_ref().map(|key| ("proxy", &key.span)));
        others.extend(own.cache.as_ref().map(|key| ("cache", &key.span)));
    } else {
        others.extend(location.alias.as_ref().map(|key| ("alias", &key.span)));
        others.extend(files::given(own));
    }
    if kind != Handler::Fastcgi {
        let servers = own.php_fastcgi.as_ref();
        others.extend(servers.map(|key| ("php_fastcgi", &key.span)));
        others.extend(own.fastcgi.as_ref().map(|key| ("fastcgi", &key.span)));
    }
    let name = match kind {
        Handler::Static => "static",
        Handler::Return => "return",
        Handler::ReverseProxy => "reverse_proxy",
        Handler::Fastcgi => "fastcgi",
    };
    for (key, span) in &others {
        let finding = Finding::error(
            span,
            format!("`{key}` has no effect"),
            format!("the handler of this location is `{name}`"),
        );
        reader.report(match why {
            Some(why) => finding.related(why, "here"),
            None => finding,
        });
    }
    if kind == Handler::Return {
        let alias = location.alias.as_ref().map(|key| ("alias", &key.span));
        for (key, span) in alias.into_iter().chain(files::given(own)) {
            let finding = Finding::warning(
                span,
                format!("`{key}` has no effect"),
                "the location responds with its `return`",
            );
            reader.report(match why {
                Some(why) => finding.related(why, "here"),
                None => finding,
            });
        }
    }
    others.is_empty().then_some(kind)
}
