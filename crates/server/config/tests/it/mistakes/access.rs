//! Mistakes of who may enter.

/// A file, and what is found wrong with it. `SITE` stands for a site without mistakes of three lines.
pub(super) const MISTAKES: &[(&str, &str)] = &[
    (
        "SITE\nforce_https = true\n",
        "4:15 `force_https` has no effect; the site has no `listen_tls`",
    ),
    ("SITE\nhsts = {}\n", "4:8 `hsts` has no effect"),
    ("SITE\ncors = true\n", "4:8 the key `origins` is missing"),
    (
        "SITE\ncors.origins = \"shop.example\"\n",
        "4:16 `shop.example` is not an origin",
    ),
    (
        "SITE\ncors = { origins = \"*\", credentials = true }\n",
        "4:39 a response for all origins comes without credentials",
    ),
    (
        "SITE\ncors = { origins = [\"*\", \"https://a.example\"] }\n",
        "4:21 `*` is all origins already",
    ),
    (
        "SITE\nbasic_auth = {}\n",
        "4:14 the key `users_file` is missing",
    ),
    (
        "SITE\nbasic_auth.users_file = \"none\"\n",
        "4:25 cannot read ",
    ),
    (
        "SITE\nbasic_auth.users_file = \"jwt.key\"\n",
        "4:25 line 1: expected `name:hash`",
    ),
    (
        "SITE\njwt = { algorithm = \"none\", key_file = \"jwt.key\" }\n",
        "4:21 `none` is not an algorithm that is supported",
    ),
    (
        "SITE\njwt = { algorithm = \"RS256\", key_file = \"jwt.key\" }\n",
        "4:41 this is no public key of the algorithm in PEM",
    ),
    (
        "SITE\njwt = { algorithm = \"HS256\", key_file = \"public\" }\n",
        "4:41 cannot read ",
    ),
    (
        "SITE\nallow = [\"10.0.0.0/8\", \"@offices\"]\n",
        "4:24 there is no list `offices`",
    ),
    (
        "[global.lists]\nnames = [\"a\"]\nSITE\ndeny = \"@names\"\n",
        "6:8 the list `names` has texts",
    ),
    (
        "SITE\nallow = \"@\"\n",
        "4:9 `@`: the name of the list is missing",
    ),
    (
        "SITE\njwt = { algorithm = \"HS256\" }\n",
        "4:7 the keys of tokens come from one place",
    ),
    (
        "SITE\njwt = { key_file = \"jwt.key\" }\n",
        "4:7 a key is for one algorithm",
    ),
    (
        "SITE\njwt = { key_file = \"jwt.key\", algorithm = [\"HS256\", \"HS512\"] }\n",
        "4:43 a key is for one algorithm",
    ),
    (
        "SITE\njwt = { jwks_url = \"https://id.example/keys\", algorithm = [\"RS256\", \"HS256\"] }\n",
        "4:69 an algorithm with a secret, where keys are public",
    ),
    (
        "SITE\njwt = { jwks_url = \"https://id.example\" }\n",
        "4:20 `https://id.example` is not a URL",
    ),
    (
        "SITE\njwt = { jwks_url = \"http://id.example/keys?p=1\" }\n",
        "4:20 keys come in clear text",
    ),
    (
        "SITE\njwt = { jwks_url = \"http://127.0.0.1/keys\", tls = { ca = \"cert.pem\" } }\n",
        "4:51 `tls` has no effect; the keys come in clear text",
    ),
    (
        "SITE\njwt = { jwks_file = \"jwks.json\", tls = { ca = \"cert.pem\" } }\n",
        "4:40 `tls` without `jwks_url`; nothing is fetched",
    ),
    (
        "SITE\njwt = { jwks_url = \"https://id.example/keys\", tls = {} }\n",
        "4:53 the key `ca` is missing",
    ),
    (
        "SITE\njwt = { jwks_url = \"https://id.example/keys\", tls = { ca = \"jwks.json\" } }\n",
        "4:60 ",
    ),
    (
        "SITE\njwt = { jwks_url = \"https://id.example/keys\", tls = { ca = \"missing.pem\" } }\n",
        "4:60 ",
    ),
    (
        "[[global.bots]]\nname = \"a\"\nkeys_file = \"jwks.json\"\ntls = { ca = \"cert.pem\" }\nSITE\n",
        "4:7 `tls` without `directory`; nothing is fetched",
    ),
    (
        "SITE\njwt = { jwks_file = \"jwt.key\" }\n",
        "4:21 this is no JSON Web Key Set",
    ),
    (
        "SITE\nforward_auth = { uri = \"/a\" }\n",
        "4:16 the key `to` is missing",
    ),
    (
        "SITE\nforward_auth = { to = \"http://a.example/a\", uri = \"/b\" }\n",
        "4:51 two paths of the authority",
    ),
    (
        "SITE\nforward_auth = { to = \"accounts\" }\n",
        "4:23 the site has no group of origins `accounts`",
    ),
    (
        "SITE\nforward_auth = { to = \"unix:/run/a.sock\", host = \"$proxy_host\" }\n",
        "4:50 `$proxy_host` without a URL whose host it could be",
    ),
];
