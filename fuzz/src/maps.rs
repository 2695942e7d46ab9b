//! Fuzz target of files of maps.

use apus_conditions::{RequestFacts, RequestMap, RequestMaps, map_lines};
use apus_testkit::ask;

/// A file of a map: each line is an entry, a mistake, or nothing. An entry that is written again in quotes is the same entry. Maps of
/// texts, hosts and networks take it or refuse it, and find a value or none.
pub fn map_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let lines = text.lines().count();
    let mut entries = Vec::new();
    let mut last = 0;
    for line in map_lines(text) {
        let number = match line {
            Ok(line) => {
                entries.push((line.key.into_owned(), line.value.into_owned()));
                line.number
            }
            Err(line) => line.number,
        };
        assert!(number > last && number <= lines, "{number} of {lines}");
        last = number;
    }
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let written: Vec<String> = entries
        .iter()
        .map(|(key, value)| format!("{} {}; # again\n", quoted(key), quoted(value)))
        .collect();
    let again: Vec<_> = map_lines(&written.concat())
        .map(|line| line.map(|line| (line.key.into_owned(), line.value.into_owned())))
        .collect();
    let expected: Vec<_> = entries.iter().cloned().map(Ok).collect();
    assert_eq!(again, expected);

    let mut request = ask("GET", "/a").with("host", "www.example.com").request();
    let key = entries.first().map_or("", |(key, _)| key);
    let _ = (request.headers_mut()).try_insert("user-agent", key.as_bytes());
    for from in ["user_agent", "host", "client", "path"] {
        let Ok(mut map) = RequestMap::new("a", from) else {
            panic!("{from} is no fact");
        };
        for (key, value) in &entries {
            let _ = map.insert(key, value);
        }
        if let Ok(maps) = RequestMaps::new([map]) {
            let facts = RequestFacts::new(&request);
            if let Some(value) = maps.value("a", &facts) {
                assert!(entries.iter().any(|(_, known)| known == value));
            }
        }
    }
}
