//! What answers in a location, by what it says; and keys in it that belong to something else.

use super::files;
use crate::diagnostics::Finding;
use crate::keys::Reader;
use crate::raw::{Content, Handler, Location};
use crate::source::{At, Place};

/// What answers in the location, or `None` after a key that has no effect has been reported.
pub(super) fn of(
    location: &At<Location>,
    site: &Content,
    reader: &mut Reader<'_>,
) -> Option<Handler> {
    let own = &location.content;
    let php = own.php_fastcgi.as_ref().map(|key| &key.place);
    let php = php.or(own.fastcgi.as_ref().map(|key| &key.place));
    let (kind, why) = match (&location.handler, &own.r#return, &own.upstream, php) {
        (Some(handler), ..) => (handler.value, Some(&handler.place)),
        (None, Some(answer), ..) => (Handler::Return, Some(&answer.place)),
        (None, None, Some(upstream), _) => (Handler::ReverseProxy, Some(&upstream.place)),
        (None, None, None, Some(php)) => (Handler::Fastcgi, Some(php)),
        (None, None, None, None) => {
            let has_folder = location.alias.is_some()
                || own.root.is_some()
                || reader.has_wrong(&location.place, &["root", "alias"]);
            match (&site.upstream, &site.php_fastcgi) {
                _ if has_folder => (Handler::Static, None),
                (Some(upstream), _) => (Handler::ReverseProxy, Some(&upstream.place)),
                (None, Some(php)) => (Handler::Fastcgi, Some(&php.place)),
                (None, None) => (Handler::Static, None),
            }
        }
    };
    let mut others: Vec<(&str, &Place)> = Vec::new();
    if let Some(answer) = own.r#return.as_ref().filter(|_| kind != Handler::Return) {
        others.push(("return", &answer.place));
    }
    if kind != Handler::ReverseProxy {
        others.extend(own.upstream.as_ref().map(|key| ("upstream", &key.place)));
        others.extend(own.proxy.as_ref().map(|key| ("proxy", &key.place)));
        others.extend(own.cache.as_ref().map(|key| ("cache", &key.place)));
    } else {
        others.extend(location.alias.as_ref().map(|key| ("alias", &key.place)));
        others.extend(files::given(own));
    }
    if kind != Handler::Fastcgi {
        let servers = own.php_fastcgi.as_ref();
        others.extend(servers.map(|key| ("php_fastcgi", &key.place)));
        others.extend(own.fastcgi.as_ref().map(|key| ("fastcgi", &key.place)));
    }
    let name = match kind {
        Handler::Static => "static",
        Handler::Return => "return",
        Handler::ReverseProxy => "reverse_proxy",
        Handler::Fastcgi => "fastcgi",
    };
    for (key, place) in &others {
        let finding = Finding::error(
            place,
            format!("`{key}` has no effect"),
            format!("the handler of this location is `{name}`"),
        );
        reader.report(match why {
            Some(why) => finding.related(why, "here"),
            None => finding,
        });
    }
    others.is_empty().then_some(kind)
}
