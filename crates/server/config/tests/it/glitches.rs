//! What clients do wrong: when connections are refused for it, and whose glitches are not counted.

use apus_access::GlitchThreshold;

use crate::documents::{folder, parse_in};

const SITE: &str = "[[sites]]\nlisten = 80\nroot = \"public\"\n";

#[test]
fn connections_are_refused_beyond_thresholds_unless_that_is_turned_off() {
    let folder = folder();
    for (lines, expected) in [
        ("", Some((100, 9500))),
        ("[global]\nglitches = true\n", Some((100, 9500))),
        ("[global]\nglitches = {}\n", Some((100, 9500))),
        (
            "[global.glitches]\nrefuse_above = 7\nload = 80\n",
            Some((7, 8000)),
        ),
        ("[global]\nglitches = false\n", None),
    ] {
        let plan = parse_in(folder.path(), &format!("{lines}{SITE}")).unwrap();
        let expected = expected.map(|(glitches, load)| GlitchThreshold { glitches, load });
        assert_eq!(plan.global.glitches.threshold, expected, "{lines}");
        assert!(plan.global.glitches.proxies.is_empty(), "{lines}");
    }
    let lines = format!(
        "[global]\ntrusted_proxies = [\"10.0.0.0/8\", \"unix:\"]\nbans = {{ never = \"192.0.2.0/24\" }}\n\
         {SITE}proxy_protocol_from = \"198.51.100.7\"\n"
    );
    let plan = parse_in(folder.path(), &lines).unwrap();
    let expected = ["10.0.0.0/8", "unix:", "198.51.100.7"].map(|text| text.parse().unwrap());
    assert_eq!(plan.global.glitches.proxies, expected);
}

#[test]
fn mistakes_of_glitches_are_told_with_their_places() {
    let folder = folder();
    for (lines, expected) in [
        (
            "[global]\nglitches = 5\n",
            ["true, false, or a table", "apus.toml:2"],
        ),
        (
            "[global]\nglitches = { load = 100 }\n",
            ["a whole number from 1 to 99", "apus.toml:2"],
        ),
        (
            "[global.glitches]\nload = 90\nrefuse_above = 0\n",
            ["a whole number from 1 to 100000", "apus.toml:3"],
        ),
        (
            "[global.glitches]\nrefuse_abov = 5\n",
            ["refuse_above", "apus.toml:2"],
        ),
        (
            "[[global.rules]]\nwhen = \"glitches > 1kb\"\ndeny = 403\n",
            ["1kb", "apus.toml:2"],
        ),
    ] {
        let found = parse_in(folder.path(), &format!("{lines}{SITE}"));
        let found = found.map(|_| ()).unwrap_err().to_string();
        for expected in expected {
            assert!(found.contains(expected), "{lines}: {found}");
        }
    }
}
