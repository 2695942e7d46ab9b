//! Mistakes of limits.

/// A file, and what is found wrong with it. `SITE` stands for a site without mistakes of three lines.
pub(super) const MISTAKES: &[(&str, &str)] = &[
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\n",
        "4:1 the limit has neither `rate`, `quota`, `concurrent` nor `bandwidth`",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nquota = \"1/day\"\nburst = 3\n",
        "7:9 `burst` has no effect",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nquota = \"1/day\"\nrate = \"1/s\"\n",
        "6:9 `quota` and `rate` exclude each other",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nquota = \"1/fortnight\"\n",
        "6:9 `1/fortnight`: the windows are hour, day and month",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nquota = \"1/day\"\nkey = \"connection\"\n",
        "7:7 a quota by the connection ends with it",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nquota = \"1/day\"\nkey = \"user_agent\"\ntiers = { a = \"1/s\" }\n",
        "8:15 a tier of a `quota` is a quota",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nquota = \"1/day\"\nkey = \"user_agent\"\ntiers = { a = \"1mb/day\" }\n",
        "8:9 `tiers` and `quota` count different things",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nkey = \"user_agent\"\ntiers = { file = \"missing.txt\" }\n",
        "8:18 cannot read ",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nkey = \"user_agent\"\ntiers = { a = \"1/month\" }\n",
        "8:15 a tier of a `rate` is a rate",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nconcurrent = 1\n",
        "7:14 `concurrent` and `rate` exclude each other",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nqueue = 1\n",
        "7:9 `queue` has no effect",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1mb/m\"\ndelay = 1\n",
        "7:9 `delay` has no effect",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/m\"\nkey = \"user_agent\"\ntiers = { a = \"1mb/m\" }\n",
        "8:9 `tiers` and `rate` count different things",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nconcurrent = 1\ncount = \"status == 401\"\n",
        "7:9 `count` has no effect",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nbandwidth = \"1mb/s\"\nstatus = 429\n",
        "7:10 `status` has no effect",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nbandwidth = \"1mb/s\"\n",
        "7:13 `bandwidth` and `rate` exclude each other",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nkey = \"all\"\nban = \"1m\"\n",
        "8:7 `ban` needs a key that has the client",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nban_after = 3\n",
        "7:13 `ban_after` has no effect",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nconcurrent = 1\nburst = 1\n",
        "7:9 `burst` has no effect",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a b\"\nrate = \"1/s\"\n",
        "5:8 `a b` is not a name of letters",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nkey = \"header\"\n",
        "7:7 `header`: there is no fact `header`",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nkey = \"status\"\n",
        "7:7 `status`: requests cannot be counted by `status`",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nkey = []\n",
        "7:7 `key`: there is no fact",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\ntiers = { b = \"2/s\" }\n",
        "7:9 `tiers` need a key that is one text",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/fortnight\"\n",
        "6:8 `1/fortnight`: the units are s, m, h and d",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nstatus = 200\n",
        "7:10 the number is out of range",
    ),
    (
        "SITE\nlimits = [{ name = \"a\", rate = \"1/s\" }, { name = \"a\", rate = \"2/s\" }]\n",
        "4:50 two limits have the name `a`",
    ),
];
