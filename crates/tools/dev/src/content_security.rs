//! Content security policies of pages (CSP Level 3), which have to allow the script that reloads the page.

use apus_http::Headers;
use apus_tokens::nonce;

const FIELDS: [&str; 2] = [
    "content-security-policy",
    "content-security-policy-report-only",
];

/// A script that the policies of a page have to allow.
pub(crate) struct AllowedScript {
    /// Its URL.
    script: String,
    /// The URL of its connection.
    events: String,
    /// The nonce that it needs.
    nonce: Option<String>,
}

impl AllowedScript {
    pub(crate) fn new(script: String, events: String) -> Self {
        Self {
            script,
            events,
            nonce: None,
        }
    }

    /// The nonce that the script needs, for the policies that were changed until now.
    pub(crate) fn nonce(&self) -> Option<&str> {
        self.nonce.as_deref()
    }

    /// Changes the policies of a response.
    pub(crate) fn change_fields(&mut self, headers: &mut Headers) {
        let mut policies: Vec<(&str, Vec<SecurityPolicy>)> = Vec::new();
        for name in FIELDS {
            let lines = headers.get_all(name);
            let lines = lines.filter_map(|line| std::str::from_utf8(line).ok());
            // Several policies may be in one field line.
            let parsed: Vec<_> = lines
                .flat_map(|line| line.split(','))
                .map(SecurityPolicy::parse)
                .collect();
            if !parsed.is_empty() {
                policies.push((name, parsed));
            }
        }
        self.choose_nonce(policies.iter().flat_map(|(_, policies)| policies));
        for (name, policies) in policies {
            headers.remove(name);
            for mut policy in policies {
                policy.allow(self);
                // It consists of parts of a field and of URLs of this server.
                let _ = headers.try_append(name, policy.to_string());
            }
        }
    }

    /// A policy in the page that allows the script, too.
    pub(crate) fn changed_policy(&mut self, policy: &str) -> String {
        let mut policy = SecurityPolicy::parse(policy);
        self.choose_nonce(std::iter::once(&policy));
        policy.allow(self);
        policy.to_string()
    }

    fn choose_nonce<'p>(&mut self, policies: impl Iterator<Item = &'p SecurityPolicy> + Clone) {
        if self.nonce.is_none() {
            self.nonce = policies.clone().find_map(SecurityPolicy::nonce);
        }
        if self.nonce.is_none() && policies.clone().any(SecurityPolicy::needs_nonce) {
            self.nonce = nonce().ok();
        }
    }
}

/// A policy: directives with their sources.
struct SecurityPolicy(Vec<PolicyDirective>);

struct PolicyDirective {
    name: String,
    sources: Vec<String>,
}

/// The directives for scripts and for connections, the most specific first.
const SCRIPT_DIRECTIVES: [&str; 3] = ["script-src-elem", "script-src", "default-src"];
const CONNECT_DIRECTIVES: [&str; 2] = ["connect-src", "default-src"];

impl SecurityPolicy {
    fn parse(text: &str) -> Self {
        let directives = text.split(';').filter_map(|directive| {
            let mut words = directive.split_ascii_whitespace().map(str::to_owned);
            Some(PolicyDirective {
                name: words.next()?,
                sources: words.collect(),
            })
        });
        Self(directives.collect())
    }

    /// The directive that counts. The first of a name does.
    fn directive(&self, names: &[&str]) -> Option<&PolicyDirective> {
        names.iter().find_map(|name| {
            let mut directives = self.0.iter();
            directives.find(|directive| directive.name.eq_ignore_ascii_case(name))
        })
    }

    /// The nonce of the scripts of the page.
    fn nonce(&self) -> Option<String> {
        let scripts = self.directive(&SCRIPT_DIRECTIVES)?;
        scripts.sources.iter().find_map(|source| {
            let nonce = source.strip_prefix("'nonce-")?.strip_suffix('\'')?;
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "+/-_=".contains(c);
            nonce.chars().all(is_plain).then(|| nonce.to_owned())
        })
    }

    /// Whether it ignores URLs.
    fn needs_nonce(&self) -> bool {
        self.directive(&SCRIPT_DIRECTIVES)
            .is_some_and(|scripts| scripts.has("'strict-dynamic'"))
    }

    fn allow(&mut self, allowed: &AllowedScript) {
        let by_nonce = allowed.nonce().map(|nonce| format!("'nonce-{nonce}'"));
        let source = match by_nonce {
            Some(source) if self.needs_nonce() || self.nonce().is_some() => source,
            _ => allowed.script.clone(),
        };
        self.add(&SCRIPT_DIRECTIVES, source);
        self.add(&CONNECT_DIRECTIVES, allowed.events.clone());
    }

    /// Adds a source to the directive that counts; nothing if all sources are allowed.
    fn add(&mut self, names: &[&str], source: String) {
        let Some(found) = self.directive(names) else {
            return;
        };
        if found.has(&source) {
            return;
        }
        let mut sources: Vec<String> = found.sources.clone();
        sources.retain(|known| !known.eq_ignore_ascii_case("'none'"));
        sources.push(source);
        let is_default = found.name.eq_ignore_ascii_case("default-src");
        let name = match (is_default, names) {
            // Other resources are allowed as before.
            (true, [.., specific, _]) => (*specific).to_owned(),
            _ => found.name.clone(),
        };
        match self.0.iter_mut().find(|directive| directive.name == name) {
            Some(directive) => directive.sources = sources,
            None => self.0.push(PolicyDirective { name, sources }),
        }
    }
}

impl PolicyDirective {
    fn has(&self, source: &str) -> bool {
        self.sources.iter().any(|known| known == source)
    }
}

impl std::fmt::Display for SecurityPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, directive) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            f.write_str(&directive.name)?;
            for source in &directive.sources {
                write!(f, " {source}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy after the change, and the nonce.
    fn allowed(policy: &str) -> (String, Option<String>) {
        let mut headers = Headers::new();
        headers.try_append(FIELDS[0], policy).unwrap();
        let mut allowed = AllowedScript::new("http://a/s.js".to_owned(), "http://a/e".to_owned());
        allowed.change_fields(&mut headers);
        let lines = headers.get_all(FIELDS[0]);
        let lines: Vec<_> = lines
            .map(|line| std::str::from_utf8(line).unwrap())
            .collect();
        (lines.join(", "), allowed.nonce)
    }

    #[test]
    fn a_policy_allows_the_script_and_nothing_else() {
        for (policy, expected) in [
            (
                "base-uri 'self'; object-src 'none'",
                "base-uri 'self'; object-src 'none'",
            ),
            (
                "default-src 'none'; img-src 'self'",
                "default-src 'none'; img-src 'self'; script-src http://a/s.js; connect-src http://a/e",
            ),
            (
                "script-src 'self' 'unsafe-inline';connect-src 'none'",
                "script-src 'self' 'unsafe-inline' http://a/s.js; connect-src http://a/e",
            ),
            (
                "default-src 'self', script-src https://b/",
                "default-src 'self'; script-src 'self' http://a/s.js; connect-src 'self' http://a/e, \
                 script-src https://b/ http://a/s.js",
            ),
        ] {
            assert_eq!(allowed(policy), (expected.to_owned(), None));
        }
    }

    #[test]
    fn the_script_has_the_nonce_of_the_page() {
        let (policy, nonce) =
            allowed("script-src 'nonce-a+b=' 'strict-dynamic'; connect-src 'self'");
        assert_eq!(nonce.as_deref(), Some("a+b="));
        assert_eq!(
            policy,
            "script-src 'nonce-a+b=' 'strict-dynamic'; connect-src 'self' http://a/e"
        );
    }

    #[test]
    fn a_policy_that_ignores_urls_gets_a_nonce() {
        let (policy, nonce) = allowed("script-src 'sha256-abc=' 'strict-dynamic'");
        let nonce = nonce.unwrap();
        assert_eq!(
            policy,
            format!("script-src 'sha256-abc=' 'strict-dynamic' 'nonce-{nonce}'")
        );
    }

    #[test]
    fn a_policy_of_the_page_has_the_nonce_of_the_response() {
        let mut headers = Headers::new();
        let policy = "script-src 'nonce-one'";
        headers.try_append(FIELDS[0], policy).unwrap();
        let mut allowed = AllowedScript::new("http://a/s.js".to_owned(), "http://a/e".to_owned());
        allowed.change_fields(&mut headers);
        assert_eq!(
            allowed.changed_policy("script-src 'nonce-two'; connect-src 'none'"),
            "script-src 'nonce-two' 'nonce-one'; connect-src http://a/e"
        );
        let expected = "script-src 'self' http://a/s.js";
        assert_eq!(allowed.changed_policy("script-src 'self'"), expected);
        assert_eq!(allowed.nonce(), Some("one"));
    }
}
