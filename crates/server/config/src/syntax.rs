//! Errors of syntax with advice, and the text of a file without the lines that have them, so that the rest can be read.

use std::ops::Range;

use toml::de::{DeTable, Error};

use super::diagnostics::Finding;
use super::source::SourceSpan;

/// The most errors of syntax that are reported for one file.
const MAX_ERRORS: usize = 20;

/// The most times that one file is parsed.
const MAX_PASSES: usize = 400;

/// The longest line that is repeated in advice.
const LONGEST_LINE: usize = 200;

/// A file without its errors of syntax.
pub(super) struct RepairedText {
    /// TOML of the same length: lines with errors have no value, or are blank.
    pub(super) text: String,
    /// The values that replace the values of such lines.
    pub(super) broken: Vec<Range<usize>>,
    pub(super) errors: Vec<Finding>,
    /// Whether tables or keys are missing in the text.
    pub(super) is_partial: bool,
    /// Whether the text is TOML.
    pub(super) is_toml: bool,
    /// Whether it has the format of another server.
    pub(super) is_other_format: bool,
}

impl RepairedText {
    /// The text of the file at this position of the files.
    pub(super) fn of(text: &str, file: usize) -> Self {
        let mut repaired = Self {
            text: text.to_owned(),
            broken: Vec::new(),
            errors: Vec::new(),
            is_partial: false,
            is_toml: true,
            is_other_format: false,
        };
        repaired.remove_parts_of_no_site(file);
        // Each pass repairs a line; a line needs two passes at most.
        for _ in 0..MAX_PASSES.min(2 * text.lines().count() + 2) {
            let error = match DeTable::parse_recoverable(&repaired.text) {
                (_, errors) if errors.is_empty() => return repaired,
                (_, errors) => errors.into_iter().next(),
            };
            let Some(error) = error else { break };
            if repaired.errors.is_empty()
                && let Some(finding) = other_format(text, file)
            {
                repaired.errors.push(finding);
                repaired.is_other_format = true;
                break;
            }
            if !repaired.remove(&error, text, file) || repaired.errors.len() >= MAX_ERRORS {
                break;
            }
        }
        repaired.is_toml = false;
        repaired.is_partial = !repaired.is_other_format;
        repaired
    }

    /// Reports and removes tables of a site that are above the first site.
    fn remove_parts_of_no_site(&mut self, file: usize) {
        let mut is_text = false;
        for line in lines(&self.text) {
            let text = self.line(&line).trim();
            let was_text = is_text;
            if (text.matches("\"\"\"").count() + text.matches("'''").count()) % 2 == 1 {
                is_text = !is_text;
            }
            if was_text {
                continue;
            }
            if text.starts_with("[[sites]]") || text.starts_with("sites") {
                return;
            }
            let header = text.split(['#', '=']).next().unwrap_or_default().trim_end();
            let is_part = header.starts_with("[[sites.") || header.starts_with("[sites.");
            if !is_part || !header.ends_with(']') {
                continue;
            }
            let start = line.start + self.line(&line).find('[').unwrap_or_default();
            let span = SourceSpan {
                file,
                bytes: start..start + header.len(),
            };
            let header = header.to_owned();
            self.errors.push(
                Finding::error(
                    &span,
                    format!("`{header}` is above the first `[[sites]]`"),
                    "it belongs to no site",
                )
                .help("a table of a site is below the keys of its site: write [[sites]] with `listen` above it"),
            );
            self.remove_table(&line);
        }
    }

    /// Reports an error, and removes its line. False if that is not possible.
    fn remove(&mut self, error: &Error, original: &str, file: usize) -> bool {
        let bytes = error.span().unwrap_or(0..0);
        let at = bytes.start.min(self.text.len());
        let Some(line) = lines(&self.text).into_iter().find(|line| at <= line.end) else {
            return false;
        };
        let is_known = self.line(&line) != original.get(line.clone()).unwrap_or_default();
        let opener = self.opener(&line);
        if !is_known || opener.is_some() {
            let shown = opener.clone().unwrap_or_else(|| line.clone());
            let text = original.get(shown.clone()).unwrap_or_default();
            let is_new = self.line(&shown) == text;
            if is_new {
                let finding = finding(error, text, file);
                self.errors.push(match &opener {
                    Some(opener) => {
                        let start = opener.start + (text.len() - text.trim_start().len());
                        let span = SourceSpan {
                            file,
                            bytes: start..opener.end,
                        };
                        finding
                            .related(&span, "it begins here")
                            .help("a list or a table above is not closed")
                    }
                    None => finding,
                });
            }
        }
        match opener {
            Some(opener) => {
                // The lines up to the error continue a value that is not closed.
                self.blank(opener.end..line.start);
                self.remove_value(&opener);
                true
            }
            None if is_known && self.line(&line).trim().is_empty() => false,
            None if is_known => {
                self.blank(line);
                true
            }
            None if error.message().contains("duplicate key") => {
                if is_header(self.line(&line)) {
                    self.remove_table(&line)
                } else {
                    self.blank(line)
                }
                true
            }
            None if is_header(self.line(&line)) => {
                self.remove_table(&line);
                true
            }
            None => {
                self.remove_value(&line);
                true
            }
        }
    }

    fn line(&self, line: &Range<usize>) -> &str {
        self.text.get(line.clone()).unwrap_or_default()
    }

    /// Replaces bytes by blanks, except for ends of lines.
    fn blank(&mut self, bytes: Range<usize>) {
        let blanks: Vec<u8> = (self.text.bytes().enumerate())
            .map(|(at, byte)| {
                if bytes.contains(&at) && byte != b'\n' {
                    b' '
                } else {
                    byte
                }
            })
            .collect();
        self.text = String::from_utf8(blanks).unwrap_or_default();
    }

    /// Removes a table with its keys.
    fn remove_table(&mut self, header: &Range<usize>) {
        self.is_partial = true;
        let mut following = lines(&self.text).into_iter();
        let next = following.find(|line| line.start > header.start && is_header(self.line(line)));
        let end = next.map_or(self.text.len(), |next| next.start);
        self.blank(header.start..end);
    }

    /// Replaces the value of a line, if the line has a key.
    fn remove_value(&mut self, line: &Range<usize>) {
        let text = self.line(line).to_owned();
        let start = text.len() - text.trim_start().len();
        let rest = text.get(start..).unwrap_or_default();
        let is_of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let key = rest.find(|c| !is_of_key(c)).unwrap_or(rest.len());
        let after = rest.get(key..).unwrap_or_default();
        let gap = after.len() - after.trim_start().len();
        let is_block = rest.trim_end().ends_with('{');
        let is_pair = after.trim_start().starts_with('=')
            || (gap > 0 && !after.trim().is_empty())
            || after.starts_with(':');
        self.blank(line.clone());
        if key == 0 || !is_pair || is_block || rest.starts_with(['.', '-']) {
            self.is_partial = true;
            return;
        }
        let value = line.start + start + key;
        let comma = if text.trim_end().ends_with(',') {
            ","
        } else {
            ""
        };
        let replacement = format!("{}=0{comma}", rest.get(..key).unwrap_or_default());
        let from = line.start + start;
        if from + replacement.len() <= line.end {
            self.text
                .replace_range(from..from + replacement.len(), &replacement);
            self.broken.push(value + 1..value + 2);
        } else {
            self.is_partial = true;
        }
    }

    /// The line above with a list or a table that is open at this line.
    fn opener(&self, line: &Range<usize>) -> Option<Range<usize>> {
        let text = self.line(line);
        let is_key = text
            .split_once('=')
            .is_some_and(|(key, _)| is_key(key.trim()));
        if !is_key && !is_header(text) && !text.trim().is_empty() {
            return None;
        }
        let above = lines(&self.text);
        let mut depth = 0;
        for above in above.into_iter().rev().filter(|one| one.end < line.start) {
            let text = self.line(&above);
            if is_header(text) {
                return None;
            }
            depth += brackets(text);
            if depth > 0 && text.contains('=') {
                return Some(above);
            }
        }
        None
    }
}

/// The lines of a text, without their ends.
fn lines(text: &str) -> Vec<Range<usize>> {
    let mut start = 0;
    text.split('\n')
        .map(|line| {
            let range = start..start + line.len();
            start += line.len() + 1;
            range
        })
        .collect()
}

fn is_key(text: &str) -> bool {
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '"');
    !text.is_empty() && text.chars().all(is_of_key)
}

/// Whether a line begins a table.
fn is_header(line: &str) -> bool {
    let text = line.trim_start();
    let name = text.trim_start_matches('[');
    name.len() < text.len() && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// The number of lists and tables that a line opens, less those that it closes.
fn brackets(line: &str) -> i32 {
    let mut quote = None;
    let mut depth = 0;
    for c in line.chars() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (None, '#') => break,
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            _ => {}
        }
    }
    depth
}

/// The error about a file in the format of another server.
fn other_format(text: &str, file: usize) -> Option<Finding> {
    let mut is_first = true;
    for line in lines(text) {
        let shown = text.get(line.clone()).unwrap_or_default();
        let trimmed = shown.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let word = trimmed.split([' ', '\t', '{']).next().unwrap_or_default();
        let is_block = trimmed.ends_with('{') && !trimmed.contains('=')
            || trimmed.ends_with("= {") && word == "location";
        let format = match word {
            "http" | "server" | "events" | "location" | "upstream" | "stream" | "if"
                if is_block =>
            {
                "nginx"
            }
            _ if trimmed.starts_with('<') && trimmed.ends_with('>') => "Apache",
            _ if is_first
                && trimmed.starts_with('{')
                && (trimmed.len() == 1 || trimmed.contains('"')) =>
            {
                "JSON or Caddy"
            }
            "frontend" | "backend" | "defaults" | "listen"
                if is_first && !trimmed.contains('=') =>
            {
                "HAProxy"
            }
            _ if is_first && trimmed == "---" => "YAML",
            _ if is_first && trimmed.ends_with(':') && !trimmed.contains('=') => "YAML",
            _ if is_block => "Caddy",
            _ => {
                is_first = false;
                continue;
            }
        };
        let start = line.start + (shown.len() - shown.trim_start().len());
        let span = SourceSpan {
            file,
            bytes: start..start + trimmed.len(),
        };
        return Some(
            Finding::error(&span, format!("this is the syntax of {format}; the file is TOML"), "expected `key = value`, [table] or [[table]]")
                .help("a site is: [[sites]], listen = 80, server_name = \"example.com\", root = \"/srv/www\", each on a line of its own"),
        );
    }
    None
}

fn finding(error: &Error, line: &str, file: usize) -> Finding {
    let bytes = error.span().unwrap_or(0..0);
    let mut message = error.message().lines();
    let title = message.next().unwrap_or("this is not TOML").to_owned();
    let rest: Vec<_> = message.collect();
    let finding = Finding::error(&SourceSpan { file, bytes }, title, rest.join(", "));
    match advice(line, error.message()) {
        Some(help) => finding.help(help),
        None => finding,
    }
}

/// Advice about a line with an error of syntax.
fn advice(line: &str, message: &str) -> Option<String> {
    let text = line.trim();
    if text.len() > LONGEST_LINE {
        return None;
    }
    if message.contains("duplicate key") {
        let hint = if !is_header(text) {
            "a key is written once; several values are a list: [\"a\", \"b\"]"
        } else if text.starts_with("[[") {
            "it was begun as one table above: write it with two brackets there, too"
        } else {
            "there is one such table: write all its keys below the first one"
        };
        return Some(hint.to_owned());
    }
    if text.contains(['\u{201c}', '\u{201d}', '\u{2018}', '\u{2019}']) {
        return Some("write straight quotes: \"text\"".to_owned());
    }
    if text.starts_with("//") || text.starts_with("/*") || text.starts_with("--") {
        return Some("a comment begins with #".to_owned());
    }
    if is_header(text) {
        return Some("a table is [name], and one of several [[name]]".to_owned());
    }
    let without = text.trim_end_matches(';').trim_end();
    let Some((key, value)) = text.split_once('=').filter(|(key, _)| is_key(key.trim())) else {
        return of_line_without_equals(without);
    };
    let (key, value) = (key.trim(), value.trim());
    if ["\"", "'"]
        .iter()
        .any(|quote| value.starts_with(quote) && value.matches(quote).count() == 1)
    {
        return Some("the quote at the end of the text is missing".to_owned());
    }
    let bare = value.trim_end_matches(';').trim_end();
    if value.starts_with('"') && value.contains('\\') {
        return Some(
            "write a text with backslashes in single quotes, '~ \\.php$', or each of them twice"
                .to_owned(),
        );
    }
    if bare.is_empty() {
        return Some(format!("the value of `{key}` is missing"));
    }
    if bare.starts_with(['"', '\'', '[', '{']) {
        let is_end = value.len() > bare.len();
        return is_end.then(|| format!("a line has no `;` at its end: write {key} = {bare}"));
    }
    Some(match bare.to_ascii_lowercase().as_str() {
        "on" | "yes" | "true" => format!("write {key} = true"),
        "off" | "no" | "false" => format!("write {key} = false"),
        _ if bare.parse::<f64>().is_ok() => {
            format!("a line has no `;` at its end: write {key} = {bare}")
        }
        _ if bare.starts_with(|c: char| c.is_ascii_digit())
            && bare.bytes().all(|byte| byte.is_ascii_alphanumeric()) =>
        {
            format!("a value with a unit is a text: write {key} = \"{bare}\"")
        }
        _ if bare.contains('"') => return None,
        _ => format!("a text has quotes: write {key} = \"{bare}\""),
    })
}

fn of_line_without_equals(text: &str) -> Option<String> {
    if let Some((key, value)) = text.split_once(": ")
        && is_key(key)
    {
        return Some(format!("write {key} = {}", written(value.trim())));
    }
    let (key, value) = text.split_once(char::is_whitespace)?;
    is_key(key).then(|| format!("write {key} = {}", written(value.trim())))
}

/// A value as TOML has it.
fn written(value: &str) -> String {
    let is_valid = value.starts_with(['"', '\'', '[', '{'])
        || value.parse::<u64>().is_ok()
        || matches!(value, "true" | "false");
    match value {
        "on" | "yes" => "true".to_owned(),
        "off" | "no" => "false".to_owned(),
        _ if is_valid => value.to_owned(),
        _ => format!("\"{value}\""),
    }
}
