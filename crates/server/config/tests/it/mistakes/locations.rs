//! Mistakes of locations, and of what they return.

/// A file, and what is found wrong with it. `SITE` stands for a site without mistakes of three lines.
pub(super) const MISTAKES: &[(&str, &str)] = &[
    (
        "SITE\nreturn = { status = 301 }\n",
        "4:10 a redirect without a destination",
    ),
    (
        "SITE\nreturn = { status = 200, location = \"/\" }\n",
        "4:21 ",
    ),
    (
        "SITE\nreturn = { status = 301, location = \"/\", text = \"a\" }\n",
        "4:49 `text` and `location` exclude each other",
    ),
    (
        "SITE\nreturn = { status = 99 }\n",
        "4:21 the number is out of range; expected a whole number from 200 to 599",
    ),
    (
        "SITE\n[[sites.locations]]\nroot = \"public\"\n",
        "4:1 the key `path` is missing; expected `path` in this table",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"~ (\"\n",
        "5:8 `~ (`: the regular expression has an error",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"a\"\n",
        "5:8 `a`: a location's path starts with a slash",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\n[[sites.locations]]\npath = \"^~ /a\"\n",
        "7:8 two locations are for `^~ /a`",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\nalias = \"other\"\nroot = \"public\"\n",
        "6:9 `alias` and `root` exclude each other",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"~ a\"\nalias = \"other\"\n",
        "6:9 `alias` in a location with a regular expression",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\nhandler = \"return\"\n",
        "6:11 the handler `return` has no response",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\nhandler = \"static\"\nreturn = { status = 404 }\n",
        "7:10 `return` has no effect",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\nhandler = \"proxy\"\n",
        "6:11 `proxy` is not a handler; expected \"static\" or \"return\" or \"reverse_proxy\"",
    ),
];
