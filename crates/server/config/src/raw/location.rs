//! The keys of a location, which a site has, too.

use serde_json::json;

use super::cache::Cache;
use super::layers::{
    BasicAuth, CertificateNeed, Cors, ForwardAuth, Jwt, Limit, Networks, RefererRules, RequestIds,
    Satisfy, SecurityHeaders, SignedUrl,
};
use super::php::Fastcgi;
use super::proxy::Proxy;
use super::response::{FieldChanges, Return};
use super::rules::Rule;
use super::{YEAR, not_given};
use crate::description::TypeDescription;
use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, KeyType, ValueNode, choices, keys, shown};
use crate::size::Megabytes;
use crate::source::Setting;
use crate::string_type::origin::UpstreamName;
use crate::string_type::php::PhpAddress;
use crate::string_type::{
    FileConditionText, HeaderText, LocationPath, MediaType, PathPattern, RegexText, SitePath,
    StatusSet, UriTemplate,
};
use crate::value::{FilePath, List, Map, OneOrMore, Seconds, Switch, Text};

keys! {
    /// Keys of a site and of a location. A location inherits the keys that it does not give from
    /// the site.
    pub(crate) struct LocationKeys {
        /// The folder of static files; the path of the request is appended to it.
        root: FilePath,
        /// The index files of a folder; the first that exists is sent. With `php_fastcgi`, the
        /// default starts with `index.php`.
        index: OneOrMore<Text> = OneOrMore(default_index()),
        /// Paths to try in order; `$uri` is the path of the request, and a path that ends with `/`
        /// means a folder with an index file. If none exists, the request is redirected internally
        /// to the last one, which can contain the variables of `rewrite` (`$args` is the query), or
        /// gets its status, as `=404`.
        try_files: OneOrMore<Text> = OneOrMore::default(),
        /// Whether folders without an index file are listed, as a page or as JSON.
        listing: bool = false,
        /// Whether files and folders are served whose names start with a dot. `/.well-known/`
        /// always is.
        hidden_files: bool = false,
        /// Which symbolic links are followed. By default `inside`; with the preset `laravel`, whose
        /// `public/storage` is one, `all`.
        symlinks: Symlinks = Symlinks::Inside,
        /// Media types by file name extension, which take precedence over the built-in table.
        mime: Map<Text, MediaType> = Map::default(),
        /// The charset of text files. Empty: none.
        charset: Charset = Charset("utf-8".to_owned()),
        /// `Cache-Control` by pattern: of the file's name (`"*.{css,js}"`), or of the path below
        /// the root (`"/assets/**"`, where `**` matches slashes too). The first matching pattern
        /// applies.
        cache_control: Map<PathPattern, HeaderText> = Map::default(),
        /// Changes of response fields. Changes of a location are applied after the changes of the site.
        headers: FieldChanges,
        /// Changes of request fields, before the handler. Changes of a location are applied after
        /// the changes of the site.
        request_headers: FieldChanges,
        /// Error pages: from a status (`404`) or a class (`5xx`) to a path of the site. Pages of a
        /// location take precedence over the pages of the site.
        error_pages: Map<StatusSet, SitePath> = Map::default(),
        /// The largest request body, in MB; larger ones get 413. 0: no limit. By default as in
        /// `[global]`.
        client_max_body_size: Megabytes<0, 1_000_000_000>,
        /// Rules that rewrite the path, in order. The rules of the site are applied first.
        rewrite: List<Rewrite> = List::default(),
        /// A status, a redirect or a text as the response. A site's `return` is for paths that
        /// match no location; locations do not inherit it.
        r#return: Return,
        /// The origins of a reverse proxy: the name of a group of the site, or a URL. A path, as in
        /// `"app/"` or `"http://127.0.0.1:3000/v1/"`, replaces the path of the location; otherwise
        /// the path is unchanged. Locations without their own handler inherit it.
        upstream: UpstreamName,
        /// The PHP servers that run scripts below the root: the socket of PHP-FPM as
        /// `"/run/php/php-fpm.sock"`, `"host:port"`, several of them, or the name of a group of the
        /// site with `protocol = "fastcgi"`. Other files are served as they are. Locations without
        /// their own handler inherit it.
        php_fastcgi: OneOrMore<PhpAddress>,
        /// Settings for PHP over FastCGI.
        fastcgi: Fastcgi,
        /// Changes of requests to origins and of their responses.
        proxy: Proxy,
        /// Whether responses of origins are cached, and how. `true`: as their fields say.
        cache: Switch<Cache>,
        /// An id for each request. `true`: in `X-Request-Id`.
        request_id: Switch<RequestIds>,
        /// Fields that restrict what browsers do with responses. `true`: the defaults of the table.
        security_headers: Switch<SecurityHeaders>,
        /// Which scripts of other origins may read responses (CORS). `false`: none, also where the site allows
        /// some.
        cors: Switch<Cors>,
        /// How long a response may take until it begins, without the time in which the client sends its body, in
        /// seconds; 503 beyond. 0: no limit.
        request_timeout: Seconds<0, YEAR>,
        /// The networks whose clients are served; all others get 403. `"unix:"` is clients of Unix sockets, and
        /// `"@NAME"` a list of networks of `[global.lists]`. Behind
        /// `trusted_proxies` the client is the one that they name. `false`: all, also where the site allows only some.
        allow: Networks,
        /// The networks whose clients get 403, also those that `allow` has and those that authenticate. `"@NAME"` is a list of
        /// networks of `[global.lists]`. `false`: none, also
        /// where the site denies some.
        deny: Networks,
        /// Whether clients need a verified certificate; 403 without one. It is for sites whose `tls.client_auth` is
        /// `"optional"`.
        client_certificate: CertificateNeed = CertificateNeed::Optional,
        /// How many of `allow`, `client_certificate`, `basic_auth`, `jwt` and `forward_auth` have to admit a client. `"any"`: one of those that there
        /// are; a client that none of them admits gets 401 if it can log in, else 403.
        satisfy: Satisfy = Satisfy::All,
        /// Pages from which something may be requested. `true`: those of the host that is requested, and no page. `false`: all,
        /// also where the site restricts them.
        referers: Switch<RefererRules>,
        /// Links with a signature that may expire. `false`: none is needed, also where the site requires one.
        signed_url: Switch<SignedUrl>,
        /// Name and password with every request. `false`: none, also where the site requires them.
        basic_auth: Switch<BasicAuth>,
        /// JSON Web Tokens with every request. `false`: none, also where the site requires them.
        jwt: Switch<Jwt>,
        /// Another service that decides about each request. `false`: none, also where the site asks one.
        forward_auth: Switch<ForwardAuth>,
        /// Limits on requests.
        limits: List<Limit> = List::default(),
    }
}

fn default_index() -> Vec<Setting<Text>> {
    vec![not_given(Text("index.html".to_owned()))]
}

choices! {
    /// Which symbolic links are followed.
    pub(crate) Symlinks: "which links to follow" {
        /// Links to a file within the root.
        Inside = "inside",
        /// All.
        All = "all",
        /// None.
        None = "none",
    }
}

/// A charset; empty for none.
#[derive(Clone, Debug)]
pub(crate) struct Charset(pub(crate) String);

impl KeyType for Charset {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let text = node.text(reader, "a charset")?;
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:+".contains(&byte);
        if text.bytes().all(valid) {
            return Some(Self(text));
        }
        reader.report(Finding::error(
            &node.span,
            format!("`{}` is not a charset", shown(&text)),
            "expected a name as utf-8, or an empty string",
        ));
        None
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new("a charset as \"utf-8\"", json!({"type": "string"}))
    }

    fn shown(&self) -> serde_json::Value {
        self.0.as_str().into()
    }
}

keys! {
    /// A location of a site. Of several that match, `= exact` takes precedence; then, if the
    /// longest prefix is a `^~` one, that; then the first regular expression; then the longest
    /// prefix.
    pub(crate) struct Location {
        /// The paths that match: `"= /path"` exactly (`"= /login.php"` with its `PATH_INFO`, too),
        /// `"/prefix"`, `"^~ /prefix"` before any expression, `"~ regex"`, `"~* regex"` ignoring case.
        path [required]: LocationPath,
        /// The handler: `static` for files, `return` for the key `return`, `reverse_proxy` for the
        /// origins of the key `upstream`, `fastcgi` for files and PHP scripts with `php_fastcgi`.
        /// By default it follows from the keys that are given, else it is the handler of the site.
        handler: Handler,
        /// Whether the location serves only internal redirects: by `rewrite`, `try_files`,
        /// `error_pages` or `X-Accel-Redirect`. Clients get 404.
        internal: bool = false,
        /// The folder that replaces the location's path; with `root`, the path is appended.
        alias: FilePath,
        /// Rules for the requests of this location, which are asked behind the rules of the site.
        rules: List<Rule> = List::default(),
        ..keys: LocationKeys,
    }
}

choices! {
    /// The handler of a location.
    pub(crate) Handler: "a handler" {
        /// Files.
        Static = "static",
        /// A status, a redirect or a text as the response.
        Return = "return",
        /// Origins.
        ReverseProxy = "reverse_proxy",
        /// PHP.
        Fastcgi = "fastcgi",
    }
}

keys! {
    /// A rule that rewrites the path, or redirects the client.
    pub(crate) struct Rewrite {
        /// The regular expression that the path must match.
        from [required]: RegexText,
        /// The new path or URI; `$1` to `$9` and `$name` are what the groups of `from` matched.
        to [required]: UriTemplate,
        /// The effect of the rule.
        then: RewriteThen = RewriteThen::Continue,
        /// Tests of files: `-f`, `-d` or `-e` (file, folder, either exists), negated by `!`, and a
        /// path: `"!-f $request_filename"`.
        when: OneOrMore<FileConditionText> = OneOrMore::default(),
    }
}

choices! {
    /// The effect of a rewrite rule.
    pub(crate) RewriteThen: "what happens then" {
        /// The next rule is tried.
        Continue = "continue",
        /// The location is matched again, with the new path.
        Last = "last",
        /// No other rule is tried; the location stays.
        Break = "break",
        /// The client is redirected with 302.
        Redirect = "redirect",
        /// The client is redirected with 301.
        Permanent = "permanent",
    }
}
