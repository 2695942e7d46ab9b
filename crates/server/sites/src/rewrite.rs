//! Rewrite rules: a regular expression that changes the path of a request or redirects the client.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

use apus_http::{HeaderValue, Request, Response, StatusCode, header};
use regex::bytes::Regex;

use super::template::{
    Captures, DocumentRoot, InvalidTemplate, Template, ValueEncoding, VariableScope,
};
use apus_http::CacheBypass;
use apus_http::trace::{self, Step, StepKind};

/// A rewrite rule: if the expression matches the path and all conditions hold, the request gets
/// another path, or the client a redirect.
#[derive(Clone, Debug)]
pub struct RewriteRule {
    regex: Regex,
    path: Template,
    query: Option<Template>,
    /// Whether the query of the request is appended to the query of the rule.
    keeps_query: bool,
    flag: RewriteFlag,
    conditions: Vec<FileCondition>,
    /// Whether the result depends only on the request target.
    depends_only_on_target: bool,
}

/// The effect of a rule that applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RewriteFlag {
    /// The next rule is tried.
    #[default]
    Continue,
    /// No further rule is tried; the location is matched again with the new path.
    Last,
    /// No further rule is tried; the location stays.
    Break,
    /// The client is redirected with 302.
    Redirect,
    /// The client is redirected with 301.
    Permanent,
}

impl FromStr for RewriteFlag {
    type Err = UnknownFlag;

    fn from_str(text: &str) -> Result<Self, UnknownFlag> {
        Ok(match text {
            "" | "continue" => Self::Continue,
            "last" => Self::Last,
            "break" => Self::Break,
            "redirect" => Self::Redirect,
            "permanent" => Self::Permanent,
            _ => return Err(UnknownFlag),
        })
    }
}

/// The flag of a rewrite is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownFlag;

impl fmt::Display for UnknownFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rewrite's flag is `last`, `break`, `redirect`, `permanent`, or none")
    }
}

impl std::error::Error for UnknownFlag {}

/// A test of the file system, as `!-f $request_filename`.
#[derive(Clone, Debug)]
pub struct FileCondition {
    test: FileTest,
    is_negated: bool,
    path: Template,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileTest {
    File,
    Directory,
    Exists,
}

impl FromStr for FileCondition {
    type Err = InvalidFileCondition;

    /// Reads `[!](-f|-d|-e) path`, where the path may hold variables.
    fn from_str(text: &str) -> Result<Self, InvalidFileCondition> {
        let (operator, path) = text
            .trim()
            .split_once(char::is_whitespace)
            .ok_or(InvalidFileCondition::Syntax)?;
        let (is_negated, operator) = match operator.strip_prefix('!') {
            Some(operator) => (true, operator),
            None => (false, operator),
        };
        let test = match operator {
            "-f" => FileTest::File,
            "-d" => FileTest::Directory,
            "-e" => FileTest::Exists,
            _ => return Err(InvalidFileCondition::Syntax),
        };
        let path = Template::parse(path.trim()).map_err(InvalidFileCondition::Path)?;
        Ok(Self {
            test,
            is_negated,
            path,
        })
    }
}

impl FileCondition {
    /// The path that is tested.
    pub fn path(&self) -> &Template {
        &self.path
    }

    fn holds(&self, scope: &VariableScope<'_>) -> bool {
        let path = self.path.expand(scope, ValueEncoding::Plain);
        let metadata = std::fs::metadata(Path::new(std::ffi::OsStr::from_bytes(&path)));
        let found = metadata.is_ok_and(|metadata| match self.test {
            FileTest::File => metadata.is_file(),
            FileTest::Directory => metadata.is_dir(),
            FileTest::Exists => true,
        });
        found != self.is_negated
    }
}

/// A condition is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidFileCondition {
    /// The text is not a test and a path.
    Syntax,
    /// The path holds a variable that does not exist.
    Path(InvalidTemplate),
}

impl fmt::Display for InvalidFileCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax => f.write_str(
                "a condition is -f (file), -d (directory) or -e (either), or one of them behind !, \
                 and a path: `!-f $request_filename`",
            ),
            Self::Path(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InvalidFileCondition {}

/// A rewrite rule is invalid.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum InvalidRewrite {
    /// The regular expression has an error.
    Regex(regex::Error),
    /// The replacement holds a variable that does not exist.
    Replacement(InvalidTemplate),
    /// The replacement is neither a path nor, for a redirect, a URI.
    NotAbsolute,
}

impl fmt::Display for InvalidRewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Regex(error) => write!(f, "the regular expression has an error: {error}"),
            Self::Replacement(error) => error.fmt(f),
            Self::NotAbsolute => f.write_str(
                "a replacement starts with a slash, or with http://, https:// or $scheme:// to \
                 redirect",
            ),
        }
    }
}

impl std::error::Error for InvalidRewrite {}

/// The result of a list of rules.
pub(super) enum RewriteResult {
    /// No rule applied.
    No,
    /// The request has another path; the location is matched again.
    Path,
    /// The location stays, also if the path is another one.
    Break { is_changed: bool },
    /// The client gets this response.
    Response(Response),
}

impl RewriteRule {
    /// A rule. Groups of the expression are `$1` to `$9` in the replacement. The query of the
    /// request is appended to the query of the replacement, unless that ends with `?`. A
    /// replacement that starts with `http://`, `https://` or `$scheme://` redirects, with 302
    /// unless the flag is [`RewriteFlag::Permanent`].
    ///
    /// # Errors
    /// The expression or the replacement is invalid.
    pub fn new(
        pattern: &str,
        replacement: &str,
        flag: RewriteFlag,
    ) -> Result<Self, InvalidRewrite> {
        let regex = Regex::new(pattern).map_err(InvalidRewrite::Regex)?;
        let is_uri = ["http://", "https://", "$scheme://"]
            .iter()
            .any(|start| replacement.starts_with(start));
        let flag = match flag {
            RewriteFlag::Permanent => flag,
            _ if is_uri => RewriteFlag::Redirect,
            _ => flag,
        };
        let is_redirect = matches!(flag, RewriteFlag::Redirect | RewriteFlag::Permanent);
        let is_absolute =
            is_uri || replacement.starts_with('/') || (is_redirect && replacement.starts_with('$'));
        if !is_absolute {
            return Err(InvalidRewrite::NotAbsolute);
        }
        let template = |text: &str| {
            Template::parse_for(text, Some(&regex)).map_err(InvalidRewrite::Replacement)
        };
        let (path, query) = match replacement.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (replacement, None),
        };
        let keeps_query = !query.is_some_and(|query| query.is_empty() || query.ends_with('?'));
        let path = template(path)?;
        let query = query
            .map(|query| query.strip_suffix('?').unwrap_or(query))
            .filter(|query| !query.is_empty())
            .map(template)
            .transpose()?;
        Ok(Self {
            depends_only_on_target: path.depends_only_on_target()
                && query.as_ref().is_none_or(Template::depends_only_on_target),
            path,
            query,
            keeps_query,
            flag,
            conditions: Vec::new(),
            regex,
        })
    }

    /// Adds a condition.
    #[must_use]
    pub fn when(mut self, condition: FileCondition) -> Self {
        self.depends_only_on_target &= condition.path.depends_only_on_target();
        self.conditions.push(condition);
        self
    }

    /// The new target, if the rule applies.
    fn apply(&self, scope: &VariableScope<'_>) -> Option<String> {
        let captures = Captures::of(&self.regex, scope.path)?;
        if !self.conditions.iter().all(|test| test.holds(scope)) {
            return None;
        }
        let scope = &VariableScope {
            captures: &captures,
            ..*scope
        };
        let mut target = self.path.expand_uri(scope);
        let own = self
            .query
            .as_ref()
            .map(|query| query.expand(scope, ValueEncoding::Query));
        let kept = scope
            .request
            .query()
            .filter(|query| self.keeps_query && !query.is_empty());
        for (separator, query) in [
            (b'?', own.as_deref()),
            (
                if own.is_some() { b'&' } else { b'?' },
                kept.map(str::as_bytes),
            ),
        ] {
            if let Some(query) = query {
                target.push(separator);
                target.extend_from_slice(query);
            }
        }
        String::from_utf8(target).ok()
    }
}

/// Applies the rules to a request whose path has a normal form.
pub(super) fn run(
    rules: &[RewriteRule],
    request: &mut Request,
    site: &str,
    root: &DocumentRoot,
) -> RewriteResult {
    let mut is_changed = false;
    for rule in rules {
        let Ok(path) = request.normal_path() else {
            return RewriteResult::Response(Response::new(StatusCode::BAD_REQUEST));
        };
        let scope = VariableScope {
            request,
            path,
            site,
            root,
            captures: &Captures::default(),
        };
        let Some(target) = rule.apply(&scope) else {
            continue;
        };
        trace::note(request, || {
            Step::new(
                StepKind::Rewrite,
                target.clone(),
                format!("the rule {} matches {}", rule.regex, request.path()),
            )
        });
        match rule.flag {
            RewriteFlag::Redirect => {
                return RewriteResult::Response(redirect(StatusCode::FOUND, target.as_bytes()));
            }
            RewriteFlag::Permanent => {
                return RewriteResult::Response(redirect(
                    StatusCode::MOVED_PERMANENTLY,
                    target.as_bytes(),
                ));
            }
            _ => {}
        }
        if request.set_path_and_query(&target).is_err() {
            return RewriteResult::Response(Response::new(StatusCode::BAD_REQUEST));
        }
        if !rule.depends_only_on_target {
            request.extensions_mut().insert(CacheBypass);
        }
        is_changed = true;
        match rule.flag {
            RewriteFlag::Last => return RewriteResult::Path,
            RewriteFlag::Break => return RewriteResult::Break { is_changed },
            _ => {}
        }
    }
    if is_changed {
        RewriteResult::Path
    } else {
        RewriteResult::No
    }
}

/// A redirect without a body.
pub(super) fn redirect(status: StatusCode, location: &[u8]) -> Response {
    match HeaderValue::from_bytes(location) {
        Ok(location) => Response::new(status).with_header(&header::LOCATION, &location),
        Err(_) => Response::new(StatusCode::BAD_REQUEST),
    }
}
