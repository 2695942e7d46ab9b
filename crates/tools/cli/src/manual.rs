//! Manual pages, made from the definition of the command line.

use clap::CommandFactory;
use clap_mangen::Man;

use crate::CommandError;
use crate::arguments::Arguments;

/// The page of `apus`, or of one of its commands as `serve` or `cache-purge`, in the language of `man`.
pub(crate) fn page(command: Option<&str>) -> Result<Vec<u8>, CommandError> {
    let mut all = Arguments::command();
    // Sets the full names of the commands, which are the names of their pages.
    all.build();
    let found = match command {
        None => Some(&all),
        Some(name) => all.find_subcommand(name).or_else(|| {
            let (outer, inner) = name.split_once('-')?;
            all.find_subcommand(outer)?.find_subcommand(inner)
        }),
    };
    let page = found.cloned().ok_or_else(|| {
        let names: Vec<_> = all.get_subcommands().map(|one| one.get_name()).collect();
        CommandError::Misused(format!(
            "no command has this name; expected one of {}",
            names.join(", ")
        ))
    })?;
    let trailer = page.get_after_long_help().map(ToString::to_string);
    let has_commands = page.has_subcommands();
    let page = Man::new(page);
    let mut out = Vec::new();
    let rendered = page
        .render_title(&mut out)
        .and_then(|()| page.render_name_section(&mut out))
        .and_then(|()| page.render_synopsis_section(&mut out))
        .and_then(|()| page.render_description_section(&mut out))
        .and_then(|()| page.render_options_section(&mut out))
        .and_then(|()| {
            if has_commands {
                page.render_subcommands_section(&mut out)
            } else {
                Ok(())
            }
        });
    rendered.map_err(|error| CommandError::Failed(error.to_string()))?;
    if let Some(trailer) = trailer {
        out.extend_from_slice(sections(&trailer).as_bytes());
    }
    Ok(out)
}

/// The text after the options of the help, line by line. A line without indentation is the heading of a
/// section.
fn sections(trailer: &str) -> String {
    let mut out = String::new();
    for line in trailer.lines().filter(|line| !line.is_empty()) {
        let text = line.replace('\\', "\\e").replace('-', "\\-");
        match line.strip_suffix(':').filter(|_| !line.starts_with(' ')) {
            Some(heading) => out += &format!(".SH {}\n.nf\n", heading.to_uppercase()),
            // A full stop or an apostrophe at the margin would be a request.
            None => out += &format!("\\&{}\n", text.trim_start()),
        }
    }
    out + ".fi\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_commands_have_pages() {
        let Ok(found) = page(Some("cache-purge")) else {
            panic!("there is a page");
        };
        let found = String::from_utf8(found).unwrap();
        assert!(
            found.contains("apus cache purge \\-\\-tag product\\-7"),
            "{found}"
        );
        assert!(page(Some("cache-")).is_err() && page(Some("serve-purge")).is_err());
    }

    #[test]
    fn examples_stand_line_by_line() {
        assert_eq!(
            sections("Examples:\n  a --b\n  .c\n\nExit status:\n  0  x"),
            ".SH EXAMPLES\n.nf\n\\&a \\-\\-b\n\\&.c\n.SH EXIT STATUS\n.nf\n\\&0  x\n.fi\n"
        );
    }
}
