//! Mistakes of rules.

/// A file, and what is found wrong with it. `SITE` stands for a site without mistakes of three lines.
pub(super) const MISTAKES: &[(&str, &str)] = &[
    (
        "SITE\nrules = [{ when = 'pth == \"/\"', deny = 403 }]\n",
        "4:20 unknown fact or condition `pth`; did you mean `path`?",
    ),
    (
        "SITE\nrules = [{ when = { path = \"/a\", methd = \"GET\" }, deny = 403 }]\n",
        "4:34 unknown fact or condition `methd`; did you mean `method`?",
    ),
    (
        "SITE\nrules = [{ when = \"status == 404\", deny = 403 }]\n",
        "4:20 `status` is known with the response",
    ),
    (
        "[global]\nlists = { a = { networks = \"none\" } }\nrules = [{ when = \"client in @a\", deny = 403 }]\nSITE\n",
        "2:28 cannot read ",
    ),
    (
        "[global]\nlists = { a = [\"10.0.0.0/8\", \"x\"] }\nrules = [{ when = \"client in @a\", deny = 403 }]\nSITE\n",
        "2:30 not a network; the others in this list are networks",
    ),
    (
        "[global]\nconditions = { a = \"tsl\" }\nrules = [{ when = \"a\", deny = 403 }]\nSITE\n",
        "2:21 unknown fact or condition `tsl`; did you mean `tls`?",
    ),
    (
        "[global]\nconditions = { a = \"b\", b = \"not a\" }\nSITE\n",
        "2:16 the condition `a` is about itself",
    ),
    (
        "SITE\nrules = [{ when = \"tls and not tls\", deny = 403 }]\n",
        "4:20 it is never true",
    ),
    (
        "SITE\nrules = [{ when = \"tls\" }]\n",
        "4:10 the rule does nothing",
    ),
    (
        "SITE\nrules = [{ deny = 403, allow = true }]\n",
        "4:32 `deny` and `allow` exclude each other",
    ),
    (
        "SITE\nrules = [{ deny = 302 }]\n",
        "4:19 no status of an error",
    ),
    (
        "SITE\nrules = [{ jump = \"a\" }]\n",
        "4:19 there is no chain `a`; no chain is defined here",
    ),
    (
        "SITE\nrules = [{ on = \"response\", rewrite = \"/a\" }]\n",
        "4:39 `rewrite` is for requests",
    ),
    (
        "SITE\nrules = [{ jump = \"a\" }]\nchains = { a = [{ on = \"response\", deny = 403 }] }\n",
        "5:24 a rule of a chain is for requests",
    ),
    (
        "SITE\nrules = [{ close = true, deny = 403 }]\n",
        "4:20 `deny` and `close` exclude each other",
    ),
    (
        "SITE\nrules = [{ cache = false, deny = 403 }]\n",
        "4:20 `cache` has no effect; `deny` ends the way of the request",
    ),
    (
        "SITE\nrules = [{ close = true, headers.set = { a = \"b\" } }]\n",
        "4:26 `headers` has no effect; `close` ends the way of the request",
    ),
    (
        "SITE\nrules = [{ on = \"response\", limit = \"a\" }]\nlimits = [{ name = \"a\", rate = \"1/s\", by_rules = true }]\n",
        "4:37 `limit` is for requests",
    ),
    (
        "SITE\nrules = [{ limit = \"a\" }]\nlimits = [{ name = \"b\", rate = \"1/s\", by_rules = true }]\n",
        "4:20 there is no limit `a`; expected one of b",
    ),
    (
        "SITE\nrules = [{ limit = \"a\" }]\nlimits = [{ name = \"a\", rate = \"1/s\" }]\n",
        "4:20 the limit applies to all requests",
    ),
    (
        "[global]\nrules = [{ limit = \"a\" }]\nSITE\nlimits = [{ name = \"a\", rate = \"1/s\", by_rules = true }]\n",
        "2:20 there is no limit `a`; expected the `name` of a limit, and there is none",
    ),
    (
        "[global]\nlimits = [{ name = \"a\", rate = \"1/s\" }, { name = \"a\", rate = \"1/m\" }]\nSITE\n",
        "2:50 two limits have the name `a`",
    ),
    (
        "SITE\nrules = [{ location = \"/b/\" }]\nlocations = [{ path = \"/a/\" }]\n",
        "4:23 there is no location `/b/`; expected one of /a/",
    ),
    (
        "[global]\nrules = [{ location = \"/a/\" }]\nSITE\n",
        "2:23 `location` is for rules of a site or a location; this rule is for all sites",
    ),
    (
        "SITE\nrules = [{ delay = \"2m\" }]\n",
        "4:20 the number is out of range; expected a number of seconds from 0 to 60",
    ),
    (
        "SITE\nrules = [{ rewrite = \"a\" }]\n",
        "4:22 the target of a rewrite begins with a slash",
    ),
];
