//! `apus bench --as TOOL`: the command lines of wrk, ab and hey, with the options that mean the same here.

use std::ffi::OsString;
use std::fmt;

/// Translates `apus bench --as TOOL ARGUMENTS` to arguments of `apus bench`. Others stay as they are.
pub(crate) fn translate(arguments: Vec<OsString>) -> Result<Vec<OsString>, GeneratorArgumentError> {
    let words: Option<Vec<&str>> = arguments.iter().map(|argument| argument.to_str()).collect();
    let (program, tool, rest) = match words.as_deref() {
        Some([program, "bench", "--as", tool, rest @ ..]) => (*program, *tool, rest),
        _ => return Ok(arguments),
    };
    let translated = match tool {
        "wrk" => wrk(rest),
        "ab" => ab(rest),
        "hey" => hey(rest),
        _ => return Err(GeneratorArgumentError::Tool(tool.to_owned())),
    };
    let translated = translated.map_err(|mistake| GeneratorArgumentError::Argument {
        tool: tool.to_owned(),
        mistake,
    })?;
    let all = [program, "bench"]
        .into_iter()
        .map(str::to_owned)
        .chain(translated);
    Ok(all.map(OsString::from).collect())
}

/// Why a command line has no equivalent.
#[derive(Debug)]
pub(crate) enum GeneratorArgumentError {
    /// No tool with this name is known.
    Tool(String),
    Argument {
        tool: String,
        mistake: ArgumentMistake,
    },
}

impl fmt::Display for GeneratorArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool(tool) => write!(f, "`{tool}` is unknown; --as takes wrk, ab or hey"),
            Self::Argument { tool, mistake } => {
                write!(f, "{mistake} (as arguments of {tool})")
            }
        }
    }
}

/// What is wrong with an argument of a tool.
#[derive(Debug)]
pub(crate) enum ArgumentMistake {
    /// This option is the last word.
    NoValue(String),
    /// `apus bench` has nothing like this option.
    NoEquivalent(String),
    /// Both limits of ab.
    TwoLimits,
    NoNumber(String),
}

impl fmt::Display for ArgumentMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoValue(option) => write!(f, "{option} needs a value"),
            Self::NoEquivalent(option) => {
                write!(f, "{option} has no equivalent in `apus bench`")
            }
            Self::TwoLimits => f.write_str("-n and -t exclude each other here"),
            Self::NoNumber(text) => write!(f, "`{text}` is no number"),
        }
    }
}

/// An argument of a tool: an option, with its value if it has one, or an operand.
enum Word<'a> {
    Option(&'a str, &'a str),
    Operand(&'a str),
}

/// Splits arguments. `valued` are the options that have a value; others are flags, which are `known`, too. A value may
/// follow a short option at once, as in `-t4`.
fn split<'a>(
    arguments: &[&'a str],
    valued: &[&'a str],
    flags: &[&'a str],
) -> Result<Vec<Word<'a>>, ArgumentMistake> {
    let mut words = Vec::new();
    let mut left = arguments.iter();
    while let Some(argument) = left.next() {
        if !argument.starts_with('-') || *argument == "-" {
            words.push(Word::Operand(argument));
            continue;
        }
        if flags.contains(argument) {
            words.push(Word::Option(argument, ""));
            continue;
        }
        if valued.contains(argument) {
            let value = left
                .next()
                .ok_or_else(|| ArgumentMistake::NoValue((*argument).to_owned()))?;
            words.push(Word::Option(argument, value));
            continue;
        }
        let attached = valued.iter().find_map(|name| {
            let value = argument.strip_prefix(name)?;
            if name.starts_with("--") {
                Some((*name, value.strip_prefix('=')?))
            } else {
                Some((*name, value))
            }
        });
        match attached {
            Some((name, value)) => words.push(Word::Option(name, value)),
            None => return Err(ArgumentMistake::NoEquivalent((*argument).to_owned())),
        }
    }
    Ok(words)
}

fn pair(name: &str, value: impl Into<String>) -> [String; 2] {
    [name.to_owned(), value.into()]
}

/// wrk: `-t4 -c400 -d30s URL`. It has no warm-up.
fn wrk(arguments: &[&str]) -> Result<Vec<String>, ArgumentMistake> {
    let valued = [
        "-c",
        "--connections",
        "-d",
        "--duration",
        "-t",
        "--threads",
        "-H",
        "--header",
        "--timeout",
    ];
    let mut out: Vec<String> = pair("--warm-up", "0").into();
    let (mut connections, mut threads) = ("10", "2");
    for word in split(arguments, &valued, &["--latency", "-L"])? {
        match word {
            Word::Option("-c" | "--connections", value) => connections = value,
            Word::Option("-t" | "--threads", value) => threads = value,
            Word::Option("-d" | "--duration", value) => out.extend(pair("--duration", value)),
            Word::Option("-H" | "--header", value) => out.extend(pair("--header", value)),
            Word::Option("--timeout", value) => out.extend(pair("--timeout", value)),
            Word::Option(..) => {}
            Word::Operand(url) => out.push(url.to_owned()),
        }
    }
    out.extend(pair("--connections", connections));
    out.extend(pair("--threads", threads));
    Ok(out)
}

/// ab: `-n 10000 -c 100 -k URL`. Without `-k` each request has its own connection.
fn ab(arguments: &[&str]) -> Result<Vec<String>, ArgumentMistake> {
    let valued = ["-n", "-c", "-t", "-s", "-p", "-u", "-T", "-H", "-C", "-m"];
    let mut out: Vec<String> = pair("--threads", "1").into();
    let (mut requests, mut time, mut connections) = (None, None, "1");
    let mut keeps_alive = false;
    for word in split(arguments, &valued, &["-k", "-i", "-q", "-l", "-d", "-S"])? {
        match word {
            Word::Option("-n", value) => requests = Some(value),
            Word::Option("-c", value) => connections = value,
            Word::Option("-t", value) => time = Some(value),
            Word::Option("-s", value) => out.extend(pair("--timeout", value)),
            Word::Option("-p", value) => out.extend(pair("--body-file", value)),
            Word::Option("-u", value) => {
                out.extend(pair("--body-file", value));
                out.extend(pair("--method", "PUT"));
            }
            Word::Option("-T", value) => {
                out.extend(pair("--header", format!("content-type: {value}")))
            }
            Word::Option("-C", value) => out.extend(pair("--header", format!("cookie: {value}"))),
            Word::Option("-H", value) => out.extend(pair("--header", value)),
            Word::Option("-m", value) => out.extend(pair("--method", value)),
            Word::Option("-i", _) => out.extend(pair("--method", "HEAD")),
            Word::Option("-k", _) => keeps_alive = true,
            Word::Option(..) => {}
            Word::Operand(url) => out.push(url.to_owned()),
        }
    }
    match (requests, time) {
        (Some(requests), None) => out.extend(pair("--requests", requests)),
        (None, Some(time)) => {
            out.extend(pair("--duration", time));
            out.extend(pair("--warm-up", "0"));
        }
        (None, None) => out.extend(pair("--requests", "1")),
        (Some(_), Some(_)) => return Err(ArgumentMistake::TwoLimits),
    }
    out.extend(pair("--connections", connections));
    if !keeps_alive {
        out.push("--close".to_owned());
    }
    Ok(out)
}

/// hey: `-z 10s -c 50 URL`. Its `-q` is the rate of each of the `-c` workers.
fn hey(arguments: &[&str]) -> Result<Vec<String>, ArgumentMistake> {
    let valued = [
        "-n", "-c", "-q", "-z", "-m", "-H", "-t", "-A", "-d", "-D", "-T", "-host",
    ];
    let mut out: Vec<String> = Vec::new();
    let (mut requests, mut time, mut connections) = (None, None, "50");
    let mut rate = None;
    for word in split(
        arguments,
        &valued,
        &[
            "-disable-keepalive",
            "-h2",
            "-disable-compression",
            "-disable-redirects",
        ],
    )? {
        match word {
            Word::Option("-n", value) => requests = Some(value),
            Word::Option("-z", value) => time = Some(value),
            Word::Option("-c", value) => connections = value,
            Word::Option("-q", value) => rate = Some(value),
            Word::Option("-m", value) => out.extend(pair("--method", value)),
            Word::Option("-H", value) => out.extend(pair("--header", value)),
            Word::Option("-A", value) => out.extend(pair("--header", format!("accept: {value}"))),
            Word::Option("-T", value) => {
                out.extend(pair("--header", format!("content-type: {value}")))
            }
            Word::Option("-host", value) => out.extend(pair("--header", format!("host: {value}"))),
            Word::Option("-t", value) => out.extend(pair("--timeout", value)),
            Word::Option("-d", value) => out.extend(pair("--body", value)),
            Word::Option("-D", value) => out.extend(pair("--body-file", value)),
            Word::Option("-disable-keepalive", _) => out.push("--close".to_owned()),
            Word::Option("-h2", _) => out.push("--http2".to_owned()),
            Word::Option(..) => {}
            Word::Operand(url) => out.push(url.to_owned()),
        }
    }
    match time {
        Some(time) => {
            out.extend(pair("--duration", time));
            out.extend(pair("--warm-up", "0"));
        }
        None => out.extend(pair("--requests", requests.unwrap_or("200"))),
    }
    if let Some(rate) = rate {
        let number = |text: &str| {
            text.parse::<f64>()
                .map_err(|_| ArgumentMistake::NoNumber(text.to_owned()))
        };
        out.extend(pair(
            "--rate",
            (number(rate)? * number(connections)?).to_string(),
        ));
    }
    out.extend(pair("--connections", connections));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> Result<String, GeneratorArgumentError> {
        let words = line.split(' ').map(OsString::from).collect();
        translate(words).map(|words| words.join(" ".as_ref()).into_string().unwrap())
    }

    #[test]
    fn command_lines_of_other_generators_mean_the_same() {
        for (line, expected) in [
            (
                "apus bench --as wrk -t4 -c400 -d30s --latency http://a/",
                "apus bench --warm-up 0 --duration 30s http://a/ --connections 400 --threads 4",
            ),
            (
                "apus bench --as wrk --timeout=2s --connections 5 http://a/",
                "apus bench --warm-up 0 --timeout 2s http://a/ --connections 5 --threads 2",
            ),
            (
                "apus bench --as ab -n 1000 -c 10 -k http://a/",
                "apus bench --threads 1 http://a/ --requests 1000 --connections 10",
            ),
            (
                "apus bench --as ab -t 5 -T text/plain -p f http://a/",
                "apus bench --threads 1 --header content-type: text/plain --body-file f http://a/ --duration 5 --warm-up 0 --connections 1 --close",
            ),
            (
                "apus bench --as hey -z 10s -q 50 -c 10 -h2 http://a/",
                "apus bench --http2 http://a/ --duration 10s --warm-up 0 --rate 500 --connections 10",
            ),
            ("apus bench http://a/ -c 5", "apus bench http://a/ -c 5"),
            ("apus serve --as wrk", "apus serve --as wrk"),
        ] {
            assert_eq!(translated(line).unwrap(), expected);
        }
    }

    #[test]
    fn options_without_an_equivalent_are_errors() {
        for line in [
            "apus bench --as wrk -s a.lua http://a/",
            "apus bench --as ab -n 5 -t 5 http://a/",
            "apus bench --as ab -n",
            "apus bench --as hey -q x http://a/",
            "apus bench --as k6 http://a/",
        ] {
            assert!(translated(line).is_err(), "{line}");
        }
    }
}
