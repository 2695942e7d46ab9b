//! The page of variables, made of their definitions.

use std::fmt::Write;

use apus_access_log::LogFormat;
use apus_sites::{RequestVariable, Template};

const BEFORE: &str = "\
# Variables

This page is made of the definitions in the program. A variable is written `$name`, or `$${name}` where a letter follows: `${NAME}` is a
variable of the environment in every string ([configuration](configuration.md#more-than-one-file-and-the-environment)).

| place | variables | in the value |
| --- | --- | --- |
| `headers.set`, `headers.add`, `request_headers.set`, `request_headers.add` | of requests, `$1` to `$9` of the location's `~` expression | as it is |
| `rewrite.to` | of requests, `$1` to `$9` and `$name` of `from` | percent-encoded; behind `?` also `&`, `=`, `+` and `;`, so that a value cannot add parameters |
| the last path of `try_files` | of requests | percent-encoded, as in `rewrite.to` |
| `rewrite.when` | of requests | as it is |
| `return.location` | of requests, `$1` to `$9` of the location's `~` expression | percent-encoded, as in `rewrite.to` |
| `return.text` | of requests, `$1` to `$9` of the location's `~` expression | as it is |
| `fastcgi.params` | of requests | as it is |
| `access_log.format` | of requests, except for variables of the location; of responses | escaped; a value that is missing is `-` |

`$$` is a dollar sign. A variable that has no value for a request is empty; a field whose value is
empty is not sent.

";

/// The page `docs/variables.md`.
pub fn variables() -> String {
    let mut text = String::from(BEFORE);
    text.push_str("## Of requests\n\nThey are known when a request arrives.\n\n");
    text.push_str("| variable | value | in log formats |\n| --- | --- | --- |\n");
    let in_logs: Vec<&str> = RequestVariable::all().map(|known| known.name).collect();
    for variable in Template::variables() {
        let is_logged = if in_logs.contains(&variable.name) {
            "yes"
        } else {
            "no"
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| `${}` | {} | {is_logged} |",
            variable.name, variable.value
        );
    }
    text.push_str(
        "| `$http_NAME` | the field `NAME` of the request, with `_` for `-`; no field of the connection | yes |\n\
         | `$cookie_NAME` | the cookie `NAME` | yes |\n\
         | `$arg_NAME` | the first parameter `NAME` of the query, as it was sent | yes |\n\
         | `$var_NAME` | the variable `NAME` that a [rule](access.md#rules) has set | yes, as it is at the end of the response |\n\
         | `$map_NAME` | the value of the [map](maps.md) `NAME` | yes |\n\n",
    );
    text.push_str("## Of responses\n\nThey are known when a response has ended, so only log formats have them.\n\n");
    text.push_str("| variable | value |\n| --- | --- |\n");
    for variable in LogFormat::response_variables() {
        let _ = writeln!(text, "| `${}` | {} |", variable.name, variable.value);
    }
    text.push_str(
        "| `$sent_http_NAME` | the field `NAME` of the response, with `_` for `-`; not those that the connection adds, such as `Date` |\n",
    );
    text.push_str(AFTER);
    text
}

const AFTER: &str = "
## The request id

Each request has one id. `$request_id`, the field `X-Request-Id` that `request_id = true` adds to the response and to the request to origins
and PHP, and the lines of the log about the request (`request_id`) all have the same, and [`apus explain --id`](explain.md) tells what happened to the request. It is 32 hexadecimal digits, unless a proxy of
`trusted_proxies` sent an id of up to 128 letters, digits and `-._~+/=:@`, which is kept. `request_id.header` names another field.
The id of any other client is replaced where `request_id` is on.
";
