//! Mistakes of listeners and names of sites.

/// A file, and what is found wrong with it. `SITE` stands for a site without mistakes of three lines.
pub(super) const MISTAKES: &[(&str, &str)] = &[
    (
        "[[sites]]\nroot = \"public\"\n",
        "1:1 the site listens nowhere",
    ),
    (
        "[[sites]]\nlisten = 80\n",
        "1:1 the site has nothing to serve",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"nothere\"\n",
        "3:8 cannot serve nothere: there is no such file or folder; expected a folder",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"cert.pem\"\n",
        "3:8 cannot serve cert.pem: it is not a folder",
    ),
    (
        "[[sites]]\nlisten = 99999\nroot = \"public\"\n",
        "2:10 the number is out of range; expected a whole number from 0 to 65535",
    ),
    (
        "[[sites]]\nlisten = \"localhost:80\"\nroot = \"public\"\n",
        "2:10 `localhost:80`: write \"127.0.0.1:80\" or \"[::1]:80\"",
    ),
    (
        "[[sites]]\nlisten = \"::1\"\nroot = \"public\"\n",
        "2:10 `::1`: the port is missing",
    ),
    (
        "[[sites]]\nlisten = [80, \"*:80\"]\nroot = \"public\"\n",
        "2:15 the site listens on [::]:80 twice",
    ),
    (
        "[[sites]]\nlisten = \"unix:a\"\nipv6_only = true\nroot = \"public\"\n",
        "3:13 `ipv6_only` has no effect; the site does not listen on IPv6",
    ),
    (
        "SITE\nunix_socket_mode = \"0600\"\n",
        "4:20 `unix_socket_mode` has no effect",
    ),
    (
        "SITE\nproxy_protocol_from = \"10.0.0.0/33\"\n",
        "4:23 `10.0.0.0/33`: the prefix length is from 0 to 32",
    ),
    (
        "SITE\nserver_name = \"a*b\"\n",
        "4:15 `a*b`: a * stands for whole labels",
    ),
    (
        "SITE\nserver_name = \"~(\"\n",
        "4:15 `~(`: the regular expression has an error: ",
    ),
    (
        "SITE\nserver_name = \"example.com:80\"\n",
        "4:15 `example.com:80`: ",
    ),
    (
        "SITE\nname = \"one\"\nSITE\nname = \"two\"\n",
        "5:1 two sites are for all other hosts on [::]:80",
    ),
    (
        "SITE\nserver_name = \"a.example\"\nname = \"one\"\nSITE\nserver_name = [\"b.example\", \"A.example\"]\nname = \"two\"\n",
        "9:29 two sites are for the host `a.example` on [::]:80",
    ),
    (
        "SITE\nserver_name = \"a.example\"\nname = \"one\"\nSITE\nserver_name = \"b.example\"\nname = \"one\"\n",
        "10:8 two sites are called `one`",
    ),
    (
        "SITE\nname = \"one\"\n[[sites]]\nname = \"two\"\nserver_name = \"a\"\nlisten = 80\nipv6_only = true\nroot = \"public\"\n",
        "8:10 two sites listen on [::]:80 with different `ipv6_only` or `unix_socket_mode`",
    ),
    (
        "SITE\nproxy_protocol_from = \"::1\"\n[[sites]]\nname = \"two\"\nserver_name = \"a\"\nlisten = 80\nroot = \"public\"\n",
        "8:10 two sites listen on [::]:80 with different `proxy_protocol_from`",
    ),
    (
        "SITE\nserver_name = \"b\"\n[[sites]]\nserver_name = \"example.com\"\nlisten_tls = 80\nroot = \"public\"\ntls = { cert = \"cert.pem\", key = \"key.pem\" }\n",
        "7:14 two sites listen on [::]:80 in clear text and with TLS",
    ),
];
