//! Mistakes of the environment and of included files.

/// A file, and what is found wrong with it. `SITE` stands for a site without mistakes of three lines.
pub(super) const MISTAKES: &[(&str, &str)] = &[
    (
        "SITE\nname = \"${NOPE}\"\n",
        "4:8 the environment variable NOPE is not set; read here; set it, or give a default: ${NOPE:-default}",
    ),
    (
        "SITE\nname = \"${NOPE\"\n",
        "4:8 `${NOPE` names no environment variable",
    ),
    (
        "include = \"no.toml\"\nSITE\n",
        "1:11 cannot read no.toml: there is no such file or folder",
    ),
    (
        "include = \"a[.toml\"\nSITE\n",
        "1:11 `a[.toml` is not a pattern of paths",
    ),
    (
        "include = \"/dev/zero\"\nSITE\n",
        "1:11 cannot read /dev/zero: it is not a file",
    ),
];
