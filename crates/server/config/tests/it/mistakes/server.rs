//! Mistakes of the file and of `[global]`.

/// A file, and what is found wrong with it. `SITE` stands for a site without mistakes of three lines.
pub(super) const MISTAKES: &[(&str, &str)] = &[
    ("", "1:1 there is no site"),
    ("SITE\n[sites.tls\n", "4:11 unclosed table, expected `]`"),
    (
        "SITE\nrooot = 1\n",
        "4:1 unknown key `rooot`; no such key in this table; did you mean `root`?",
    ),
    (
        "SITE\nkeepalive_timeout = 1\n",
        "4:1 unknown key `keepalive_timeout`; no such key in this table; it is a key of `[global]`",
    ),
    (
        "SITE\nqqq = 1\n",
        "4:1 unknown key `qqq`; no such key in this table; keys of this table: name, ",
    ),
    (
        "SITE\nlisting = 1\n",
        "4:11 expected true or false, found a number; expected true or false",
    ),
    ("SITE\nroot = \"other\"\n", "4:1 duplicate key"),
    (
        "[global]\nworker_threads = 2000\nSITE\n",
        "2:18 the number is out of range; expected a whole number from 0 to 1024",
    ),
    (
        "[global]\nworker_threads = \"2\"\nSITE\n",
        "2:18 expected a whole number from 0 to 1024, found a string",
    ),
    (
        "[global]\nkeepalive_timeout = 0\nSITE\n",
        "2:21 the number is out of range; expected a number of seconds from 1",
    ),
    (
        "[global]\nkeepalive_timeout = \"9x\"\nSITE\n",
        "2:21 `9x`: the units are ms, s, m, h and d",
    ),
    (
        "[global]\nclient_max_body_size = -1\nSITE\n",
        "2:24 the number is out of range",
    ),
    (
        "[global]\nclient_header_size = 4\nclient_target_size = 5\nSITE\n",
        "3:22 a request target longer than a whole head",
    ),
    (
        "[global]\nlog_level = \"inof\"\nSITE\n",
        "2:13 `inof` is not a log level; expected \"error\" or \"warn\" or \"info\" or \"debug\" or \"trace\"; did you mean \"info\"?",
    ),
    (
        "[global]\naccess_log = true\nSITE\n",
        "2:14 expected false, a path, or a table, found a boolean",
    ),
    (
        "[global]\naccess_log = { path = \"a\", format = \"jsn\" }\nSITE\n",
        "2:37 `jsn` is not a format of access logs",
    ),
    (
        "[global]\naccess_log = { path = \"a\", format = \"$statuss\" }\nSITE\n",
        "2:37 ",
    ),
    (
        "[global]\naccess_log = { format = \"json\" }\nSITE\n",
        "2:14 the access log goes nowhere; expected at least one of `path`, `syslog` and `journald`",
    ),
    (
        "[global]\naccess_log = { journald = false }\nSITE\n",
        "2:14 the access log goes nowhere",
    ),
    (
        "[global]\naccess_log = { journald = 1 }\nSITE\n",
        "2:27 expected true, false, or the path of a socket, found a number",
    ),
    (
        "[global]\naccess_log = { syslog = \"logs.example:514\" }\nSITE\n",
        "2:25 `logs.example:514`: it begins with `udp://`, `tcp://` or `unix:`",
    ),
    (
        "[global]\naccess_log = { syslog = \"udp://a:0\" }\nSITE\n",
        "2:25 `udp://a:0`: the port is from 1 to 65535",
    ),
    (
        "[global]\naccess_log = { syslog = [\"udp://a\", \"udp://a:514\"] }\nSITE\n",
        "2:37 udp://a:514 stands here twice",
    ),
    (
        "[global]\naccess_log = { journald = true, facility = \"locl7\" }\nSITE\n",
        "2:44 `locl7` is not a facility of syslog",
    ),
    (
        "[global]\naccess_log = { journald = true, app_name = \"a b\" }\nSITE\n",
        "2:44 `a b` is not 1 to 48 visible ASCII characters",
    ),
    (
        "[global]\naccess_log = { path = \"a\", facility = \"local7\" }\nSITE\n",
        "2:39 `facility` has no effect on a log without `syslog` or `journald`",
    ),
    (
        "[global]\naccess_log = { journald = true, syslog_format = \"rfc5424\" }\nSITE\n",
        "2:49 `syslog_format` has no effect on a log without `syslog`",
    ),
    (
        "[global]\naccess_log = { path = \"a\", sample = 1.5 }\nSITE\n",
        "2:37 the number is out of range; expected a number from 0 to 1 as 0.1",
    ),
    (
        "[global]\naccess_log = { path = \"a\", sample_slow = 1 }\nSITE\n",
        "2:42 `sample_slow` has no effect on a log that has all requests",
    ),
    (
        "[global]\naccess_log = { path = \"a\", hide = true }\nSITE\n",
        "2:35 expected false, or names of parameters, found a boolean",
    ),
    (
        "[global]\naccess_log = { path = \"a\", hide = \"a=b\" }\nSITE\n",
        "2:35 `a=b` is not the name of a parameter",
    ),
    (
        "[global]\naccess_log = \"syslog:server=10.0.0.1\"\nSITE\n",
        "2:14 the access log would be a file of this name; expected a table with `syslog`; write access_log = { syslog = \"udp://10.0.0.1:514\" }",
    ),
];
