//! What directives of other servers are called in `apus.toml`, for advice about unknown keys and for the documentation.

use std::fmt::Write;

/// The table: after a line `# SERVER`, a line for each of its directives, `NAME: KEYS` or `NAME: none: WHY`. Those after `# any` are
/// words that people expect.
const TABLE: &str = include_str!("equivalents.txt");

/// A directive of another server.
struct Equivalent {
    server: &'static str,
    name: &'static str,
    here: Here,
}

/// What there is in place of a directive.
enum Here {
    /// These keys.
    Is(&'static str),
    /// Nothing; why that is so, or what to do.
    Nothing(&'static str),
}

/// All directives of the table.
fn all() -> impl Iterator<Item = Equivalent> {
    let mut server = "";
    TABLE.lines().filter_map(move |line| {
        if let Some(name) = line.strip_prefix("# ") {
            server = name;
            return None;
        }
        let (name, here) = line.split_once(": ")?;
        let here = match here.strip_prefix("none: ") {
            Some(why) => Here::Nothing(why),
            None => Here::Is(here),
        };
        Some(Equivalent { server, name, here })
    })
}

/// Advice about a directive of another server; `None` for other names. Of equal names, the first applies.
pub(super) fn advice(name: &str) -> Option<String> {
    let wanted = name.replace('-', "_");
    let found = all().find(|one| one.name.eq_ignore_ascii_case(&wanted))?;
    let name = match found.server {
        "any" => format!("`{}`", found.name),
        server => format!("`{}` of {server}", found.name),
    };
    Some(match found.here {
        Here::Is(here) => format!("{name} is here {here}"),
        Here::Nothing(why) => format!("{name} does not exist here: {why}"),
    })
}

/// The page of the documentation about them, in Markdown.
pub fn equivalents() -> String {
    let mut text = String::from(
        "# Equivalents of other servers\n\n\
         What the most used directives of other servers are called in `apus.toml`. `apus check` says the same about such a name \
         in a file. This page is made from the table of these messages; `APUS_BLESS=1 cargo test -p apus-config` writes it anew. \
         [proxying.md](proxying.md#equivalents-in-nginx-and-varnish), [caching.md](caching.md#equivalents-in-nginx-and-varnish) and \
         [php.md](php.md#equivalents-in-nginx) compare more than names.\n",
    );
    let mut server = "";
    for directive in all().filter(|one| one.server != "any") {
        if directive.server != server {
            server = directive.server;
            let _ = write!(
                text,
                "\n## {server}\n\n| {server} | Apus |\n| --- | --- |\n"
            );
        }
        let name = directive.name;
        let _ = match directive.here {
            Here::Is(here) => writeln!(text, "| `{name}` | {} |", here.replace('|', "\\|")),
            Here::Nothing(why) => writeln!(text, "| `{name}` | There is none: {why}. |"),
        };
    }
    text
}
