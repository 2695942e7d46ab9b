//! The content security policies in the `meta` elements of a page (HTML section 4.2.5.3), which change while the page is sent.

/// Elements that the head of a page has; any other one ends it.
const HEAD_ELEMENTS: [&str; 11] = [
    "html", "head", "title", "base", "link", "meta", "style", "script", "noscript", "template",
    "object",
];

/// Those whose content is text.
const TEXT_ELEMENTS: [&str; 4] = ["title", "style", "script", "noscript"];

/// The most bytes that wait for the end of a tag or a comment. More is no head that anybody wrote.
const MAX_PENDING: usize = 64 * 1024;

/// Reads the head of a page as it is sent, and replaces the policies in it.
#[derive(Default)]
pub(crate) struct MetaPolicies {
    /// The beginning of a tag or a comment.
    pending: Vec<u8>,
    /// The element whose end tag is awaited.
    text_of: Option<&'static str>,
    is_over: bool,
}

impl MetaPolicies {
    /// The bytes to send for these of the page. Each policy is passed to `change`.
    pub(crate) fn push(&mut self, bytes: &[u8], change: &mut dyn FnMut(&str) -> String) -> Vec<u8> {
        self.pending.extend_from_slice(bytes);
        let mut page = std::mem::take(&mut self.pending);
        let mut sent = Vec::with_capacity(page.len());
        while !self.is_over {
            match self.next_part(&page) {
                Some(part) => {
                    let rest = page.split_off(part.len.min(page.len()));
                    match part.policy.map(|policy| policy.changed(&page, change)) {
                        Some(tag) => sent.extend(tag),
                        None => sent.append(&mut page),
                    }
                    page = rest;
                }
                None if page.len() > MAX_PENDING => self.is_over = true,
                None => {
                    self.pending = page;
                    return sent;
                }
            }
        }
        sent.append(&mut page);
        sent
    }

    /// What is left at the end of the page.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.is_over = true;
        std::mem::take(&mut self.pending)
    }

    /// The first part of a page whose end is there: a text, a comment or a tag.
    fn next_part(&mut self, page: &[u8]) -> Option<HeadPart> {
        if page.is_empty() {
            return None;
        }
        if let Some(name) = self.text_of {
            let end = format!("</{name}");
            let found = find(page, end.as_bytes());
            if found.is_some() {
                self.text_of = None;
            }
            // The end tag itself follows, and its beginning may have been sent already.
            let known = page.len().saturating_sub(end.len());
            let len = found.or((known > 0).then_some(known))?;
            return Some(HeadPart::of_len(len.max(usize::from(found == Some(0)))));
        }
        let start = page.iter().position(|byte| *byte == b'<');
        match start {
            None => return Some(HeadPart::of_len(page.len())),
            Some(0) => {}
            Some(start) => return Some(HeadPart::of_len(start)),
        }
        if page.starts_with(b"<!--") {
            let end = find(page.get(4..)?, b"-->")?;
            return Some(HeadPart::of_len(end.saturating_add(7)));
        }
        if b"<!--".starts_with(page) {
            return None;
        }
        let tag = Tag::read(page)?;
        let (name, is_end) = match tag.name.strip_prefix('/') {
            Some(name) => (name, true),
            None => (&*tag.name, false),
        };
        let is_declaration = name.starts_with(['!', '?']);
        let known = HEAD_ELEMENTS.contains(&name);
        if (is_end && name == "head") || !(known || is_declaration) {
            self.is_over = true;
        } else if !is_end {
            self.text_of = TEXT_ELEMENTS.iter().copied().find(|known| *known == name);
        }
        Some(HeadPart {
            len: tag.len,
            policy: (tag.name == "meta").then(|| tag.policy()).flatten(),
        })
    }
}

/// A part of the head.
struct HeadPart {
    len: usize,
    policy: Option<MetaPolicy>,
}

impl HeadPart {
    fn of_len(len: usize) -> Self {
        Self { len, policy: None }
    }
}

/// The place of a policy in a tag.
struct MetaPolicy {
    /// The value of the attribute, with its quotes.
    start: usize,
    end: usize,
    text: String,
}

impl MetaPolicy {
    /// The tag with another policy.
    fn changed(&self, tag: &[u8], change: &mut dyn FnMut(&str) -> String) -> Vec<u8> {
        let policy = change(&self.text)
            .replace('&', "&amp;")
            .replace('"', "&quot;");
        let before = tag.get(..self.start).unwrap_or_default();
        let after = tag.get(self.end..).unwrap_or_default();
        [before, b"\"", policy.as_bytes(), b"\"", after].concat()
    }
}

/// A tag: its name in lower case, with `/` before the name of an end tag, and its attributes.
struct Tag {
    name: String,
    len: usize,
    attributes: Vec<TagAttribute>,
}

struct TagAttribute {
    name: String,
    value: String,
    start: usize,
    end: usize,
}

impl Tag {
    /// Reads the tag at the beginning of a text, if its end is there (HTML section 13.2.5).
    fn read(text: &[u8]) -> Option<Self> {
        let is_end_of_name = |byte: u8| byte.is_ascii_whitespace() || byte == b'>';
        let mut at = 1;
        let skip = |at: &mut usize, is_part: &dyn Fn(u8) -> bool| -> Option<(usize, u8)> {
            let start = *at;
            loop {
                let byte = *text.get(*at)?;
                if !is_part(byte) {
                    return Some((start, byte));
                }
                *at = at.saturating_add(1);
            }
        };
        let lower = |start: usize, end: usize| {
            String::from_utf8_lossy(text.get(start..end).unwrap_or_default()).to_ascii_lowercase()
        };
        skip(&mut at, &|byte| !is_end_of_name(byte))?;
        let mut name = lower(1, at);
        if name.len() > 1 && name.ends_with('/') {
            name.pop();
        }
        let mut attributes = Vec::new();
        loop {
            let (_, byte) = skip(&mut at, &|byte| byte.is_ascii_whitespace() || byte == b'/')?;
            if byte == b'>' {
                let len = at.saturating_add(1);
                return Some(Self {
                    name,
                    len,
                    attributes,
                });
            }
            let named = at;
            // A name may begin with `=`.
            at = at.saturating_add(1);
            skip(&mut at, &|byte| {
                !is_end_of_name(byte) && !matches!(byte, b'=' | b'/')
            })?;
            let attribute = lower(named, at);
            let mut after = at;
            let (_, byte) = skip(&mut after, &|byte| byte.is_ascii_whitespace())?;
            if byte != b'=' {
                continue;
            }
            at = after.saturating_add(1);
            let (_, quote) = skip(&mut at, &|byte| byte.is_ascii_whitespace())?;
            let start = at;
            let value = if matches!(quote, b'"' | b'\'') {
                at = at.saturating_add(1);
                let (inside, _) = skip(&mut at, &|byte| byte != quote)?;
                let value = text.get(inside..at);
                at = at.saturating_add(1);
                value
            } else {
                skip(&mut at, &|byte| !is_end_of_name(byte))?;
                text.get(start..at)
            };
            attributes.push(TagAttribute {
                name: attribute,
                value: unescape(&String::from_utf8_lossy(value.unwrap_or_default())),
                start,
                end: at,
            });
        }
    }

    fn attribute(&self, name: &str) -> Option<&TagAttribute> {
        // The first of a name counts.
        self.attributes
            .iter()
            .find(|attribute| attribute.name == name)
    }

    fn policy(&self) -> Option<MetaPolicy> {
        let kind = self.attribute("http-equiv")?.value.trim();
        if !kind.eq_ignore_ascii_case("content-security-policy") {
            return None;
        }
        let content = self.attribute("content")?;
        Some(MetaPolicy {
            start: content.start,
            end: content.end,
            text: content.value.clone(),
        })
    }
}

/// The index of a text, whatever the case of its letters.
fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len())
        .position(|window| window.eq_ignore_ascii_case(wanted))
}

/// A value with its character references replaced. Only references to ASCII are, because a policy has nothing else.
fn unescape(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('&') {
        let (before, reference) = rest.split_at(at);
        text.push_str(before);
        let found = reference.find(';').and_then(|end| {
            let character = character(reference.get(1..end)?)?;
            Some((character, reference.get(end.saturating_add(1)..)?))
        });
        match found {
            Some((character, after)) => {
                text.push(character);
                rest = after;
            }
            None => {
                text.push('&');
                rest = reference.get(1..).unwrap_or_default();
            }
        }
    }
    text.push_str(rest);
    text
}

/// The character of a reference without `&` and `;`.
fn character(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        "lt" => Some('<'),
        "gt" => Some('>'),
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page after the change, if it comes in pieces of this size.
    fn changed(page: &str, size: usize) -> String {
        let mut policies = MetaPolicies::default();
        let mut change = |policy: &str| format!("[{policy}]");
        let mut sent = Vec::new();
        for piece in page.as_bytes().chunks(size) {
            sent.extend(policies.push(piece, &mut change));
        }
        sent.extend(policies.finish());
        String::from_utf8(sent).unwrap()
    }

    #[test]
    fn policies_in_the_head_are_changed_however_the_page_comes() {
        for (page, expected) in [
            (
                "<!DOCTYPE html><html><head><meta charset=utf-8>\
                 <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'self'\"><title>a</title></head><body>",
                "<!DOCTYPE html><html><head><meta charset=utf-8>\
                 <meta http-equiv=\"Content-Security-Policy\" content=\"[default-src 'self']\"><title>a</title></head><body>",
            ),
            (
                "<title><meta></title><META content='script-src &#x27;self&#39; a&amp;b' HTTP-EQUIV = content-security-policy />é",
                "<title><meta></title><META content=\"[script-src 'self' a&amp;b]\" HTTP-EQUIV = content-security-policy />é",
            ),
            // Neither comments, nor texts, nor what follows the head.
            (
                "<!-- <meta http-equiv=content-security-policy content=a> -->\
                 <script>'<meta http-equiv=content-security-policy content=b>'</script>\
                 <p><meta http-equiv=content-security-policy content=c>",
                "<!-- <meta http-equiv=content-security-policy content=a> -->\
                 <script>'<meta http-equiv=content-security-policy content=b>'</script>\
                 <p><meta http-equiv=content-security-policy content=c>",
            ),
            (
                "<meta name=a content=b><meta http-equiv=refresh content=1><meta http-equiv=content-security-policy>",
                "<meta name=a content=b><meta http-equiv=refresh content=1><meta http-equiv=content-security-policy>",
            ),
            ("<", "<"),
            ("<script>", "<script>"),
            ("a < b <meta http-equiv=\"x", "a < b <meta http-equiv=\"x"),
            ("", ""),
        ] {
            for size in [1, 2, 3, 7, 1000] {
                assert_eq!(changed(page, size), expected, "in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_tag_without_an_end_does_not_hold_the_page() {
        let page = format!("<meta content=\"{}", "x".repeat(MAX_PENDING * 2));
        let mut policies = MetaPolicies::default();
        let sent = policies.push(page.as_bytes(), &mut |policy| policy.to_owned());
        assert_eq!(sent.len(), page.len());
    }
}
