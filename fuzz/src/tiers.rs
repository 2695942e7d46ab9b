//! Fuzz target of files of plans of limits.

use std::collections::BTreeMap;

use apus_server::config::tiers_of_text;

/// The messages about lines, without the numbers of the lines.
const MESSAGES: [&str; 4] = [
    "has no value of the key, a space and ",
    "does not end with ",
    "has the value of line ",
    "there are more than ",
];

/// A file of plans: each line is a plan, a mistake, or nothing. No value is there twice or in a message, as it may be a secret; the order
/// of the lines means nothing; and a file that is there twice has the mistake that each value is.
pub fn tier_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    for has_quota in [false, true] {
        let (tiers, mistakes) = tiers_of_text(text, has_quota);
        assert!(tiers.len() + mistakes.len() <= text.lines().count());
        let by_value: BTreeMap<_, _> = tiers.iter().cloned().collect();
        assert_eq!(by_value.len(), tiers.len());
        for (value, units) in &tiers {
            assert!(*units > 0 && value.trim() == value && text.contains(value));
        }
        for mistake in &mistakes {
            assert!(MESSAGES.iter().any(|message| mistake.contains(message)));
            // The messages have no word as long without a quotation mark.
            let mut secrets = text.split_whitespace();
            assert!(
                !secrets.any(|part| {
                    part.len() > 12 && !part.contains('"') && mistake.contains(part)
                })
            );
        }
        let text = text.trim_start_matches('\u{feff}');
        // In front of another line, such a mark is none of the file.
        if !mistakes.is_empty() || text.contains('\u{feff}') {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        let backward: Vec<&str> = lines.iter().rev().copied().collect();
        let (other, none) = tiers_of_text(&backward.join("\n"), has_quota);
        assert!(none.is_empty(), "{none:?}");
        assert_eq!(other.into_iter().collect::<BTreeMap<_, _>>(), by_value);
        let twice = [&*lines, &*lines].concat().join("\n");
        let (same, again) = tiers_of_text(&twice, has_quota);
        assert_eq!((same.len(), again.len()), (tiers.len(), tiers.len()));
    }
}
