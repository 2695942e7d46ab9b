//! The plans of a limit: values of its key, in the table or in a file, and what each of them may do.
//!
//! The values may be secrets, as API keys are: no message has one of a file.

use std::collections::HashMap;

use apus_layers::LimitKey;

use super::conditions::lines;
use super::value_files::text_of_file;
use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, StringType};
use crate::raw::layers::Limit;
use crate::source::Setting;
use crate::string_type::limit::{QuotaText, RateText};
use crate::value::FilePath;

/// The lines of a file with mistakes that are reported one by one.
const MAX_INVALID_LINES: usize = 10;

/// The most plans of a file. Each takes some hundred bytes.
const MAX_LINES: usize = 100_000;

/// The most bytes of a file.
const MAX_BYTES: usize = 16 << 20;

/// The plans of a limit, of the kind that its `rate` or its `quota` is of.
pub(super) fn resolve<T: StringType>(
    (keys, kind): (&Setting<Limit>, &str),
    key: &LimitKey,
    reader: &mut ConfigReader<'_>,
) -> Option<Vec<(String, T)>> {
    if keys.tiers.given && !key.is_one_text() {
        reader.report(
            Finding::error(
                &keys.tiers.span,
                "`tiers` need a key that is one text",
                "they are for values of the key",
            )
            .related(&keys.key.span, "the key")
            .help("write key = \"header.x-api-key\", or another fact"),
        );
        return None;
    }
    let mut tiers = Some(Vec::new());
    for (value, tier) in &keys.tiers.values.0 {
        match (T::parse(&tier.0), &mut tiers) {
            (Ok(amount), Some(tiers)) => tiers.push((value.0.clone(), amount)),
            (Ok(_), None) => {}
            (Err(_), _) => {
                let expected = format!("expected {}", T::EXPECTED);
                let message = format!("a tier of a `{kind}` is a {kind}");
                reader.report(Finding::error(&tier.span, message, expected));
                tiers = None;
            }
        }
    }
    let Some(file) = &keys.tiers.file else {
        return tiers;
    };
    let text = text_of_file(file, reader)?;
    let mut tiers = tiers?;
    let (read, mistakes) = parse(&text, &tiers);
    report(&mistakes, file, reader);
    if !mistakes.is_empty() {
        return None;
    }
    tiers.extend(read);
    Some(tiers)
}

/// The plans of the text of a file, of a limit with a `quota` or a `rate`: each value of the key with its requests or bytes, and what is
/// wrong with the lines.
pub fn tiers_of_text(text: &str, has_quota: bool) -> (Vec<(String, u64)>, Vec<String>) {
    fn units<T: StringType>(text: &str, units: fn(&T) -> u64) -> (Vec<(String, u64)>, Vec<String>) {
        let (tiers, mistakes) = parse::<T>(text, &[]);
        let tiers = tiers.into_iter();
        let tiers = tiers.map(|(value, amount)| (value, units(&amount)));
        (tiers.collect(), mistakes)
    }
    if has_quota {
        units::<QuotaText>(text, |quota| quota.units)
    } else {
        units::<RateText>(text, |rate| rate.units.into())
    }
}

/// The plans of a file, and what is wrong with its lines.
fn parse<T: StringType>(text: &str, others: &[(String, T)]) -> (Vec<(String, T)>, Vec<String>) {
    let (mut tiers, mut mistakes) = (Vec::new(), Vec::new());
    if text.len() > MAX_BYTES {
        let megabytes = MAX_BYTES >> 20;
        mistakes.push(format!("the file has more than {megabytes} MB"));
        return (tiers, mistakes);
    }
    let others = others.iter().map(|(value, _)| (value.as_str(), 0));
    let mut places: HashMap<&str, usize> = others.collect();
    for (number, line) in lines(text) {
        if places.len() >= MAX_LINES {
            mistakes.push(format!("there are more than {MAX_LINES} tiers"));
            break;
        }
        let Some((value, amount)) = line.rsplit_once([' ', '\t']) else {
            mistakes.push(format!(
                "line {number} has no value of the key, a space and {}",
                T::EXPECTED
            ));
            continue;
        };
        let Ok(amount) = T::parse(amount) else {
            mistakes.push(format!("line {number} does not end with {}", T::EXPECTED));
            continue;
        };
        let value = value.trim_end();
        match places.insert(value, number) {
            None => tiers.push((value.to_owned(), amount)),
            Some(0) => mistakes.push(format!("line {number} has a value of the table")),
            Some(other) => mistakes.push(format!("line {number} has the value of line {other}")),
        }
    }
    (tiers, mistakes)
}

fn report(mistakes: &[String], file: &Setting<FilePath>, reader: &mut ConfigReader<'_>) {
    let path = file.value.0.display();
    for mistake in mistakes.iter().take(MAX_INVALID_LINES) {
        let message = format!("{path}: {mistake}");
        reader.report(Finding::error(&file.span, message, "in this file"));
    }
    if let Some(more @ 1..) = mistakes.len().checked_sub(MAX_INVALID_LINES) {
        let message = format!("{path}: {more} more lines have mistakes");
        reader.report(Finding::error(&file.span, message, "in this file"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_value_that_may_have_spaces_and_a_rate() {
        let text = "\u{feff}# plans\nada  100/s  # hers\n\n two words\t5/m\n";
        let (tiers, mistakes) = parse::<RateText>(text, &[]);
        let read: Vec<_> = tiers
            .iter()
            .map(|(value, rate)| (&**value, rate.units))
            .collect();
        assert_eq!(read, [("ada", 100), ("two words", 5)]);
        assert!(mistakes.is_empty());
        let (tiers, _) = parse::<QuotaText>("ada 1gb/month\n", &[]);
        assert_eq!(tiers[0].1.units, 1 << 30);
    }

    #[test]
    fn mistakes_name_their_lines_and_never_a_value() {
        let rate = RateText::parse("1/s").ok().unwrap();
        let text = "secret\nsecret 5\nsecret 5/month\nb 1/s\nb 2/s\na 1/s\n";
        let (_, mistakes) = parse::<RateText>(text, &[("a".to_owned(), rate)]);
        let starts = [
            "line 1 has no value of the key",
            "line 2 does not end with requests",
            "line 3 does not end with requests",
            "line 5 has the value of line 4",
            "line 6 has a value of the table",
        ];
        assert_eq!(mistakes.len(), starts.len());
        for (mistake, start) in mistakes.iter().zip(starts) {
            assert!(
                mistake.starts_with(start) && !mistake.contains("secret"),
                "{mistake}"
            );
        }
        let many: String = (0..=MAX_LINES)
            .map(|number| format!("{number} 1/s\n"))
            .collect();
        let (_, mistakes) = parse::<RateText>(&many, &[]);
        assert_eq!(mistakes, ["there are more than 100000 tiers"]);
    }
}
