//! The command line: the one definition from which parser, help, completions and manual are made.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use apus_server::ListenArgument;
use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

use crate::new::ProjectName;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// A web server: static sites and virtual hosts over HTTP and HTTPS, from one short file or none.
#[derive(Debug, Parser)]
#[command(
    name = "apus",
    version,
    styles = STYLES,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Exit status: 0 done, 1 failed, 2 misused.",
    after_long_help = "\
Examples:
  apus serve public                    serve a folder at http://127.0.0.1:8080/
  apus serve public --tls --open       over HTTPS too, and show it in the browser
  apus check /etc/apus/apus.toml       every mistake of a configuration, with its place
  apus serve /etc/apus/apus.toml       serve what a configuration says
  apus reload /etc/apus/apus.toml      go on with its new content; no request is lost
  apus explain GET https://example.com/a    why this request gets the answer it gets

Environment:
  APUS_LOG    the level of the log, before that of the configuration: debug, or warn,apus_net=trace
  NO_COLOR    no colours, if it is set to anything

Exit status:
  0  done
  1  failed; the reason is on standard error
  2  misused: an argument is wrong or missing"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Serve a folder, or what a configuration says
    ///
    /// Runs in the foreground until SIGINT or SIGTERM, which let open requests end; a second one
    /// ends at once. SIGHUP reads the configuration again, SIGUSR1 reopens the access logs.
    #[command(after_long_help = "\
Examples:
  apus serve                           ./apus.toml, or else the current folder
  apus serve public                    a folder, at http://127.0.0.1:8080/ or the next free port
  apus serve public --listen 80        for everybody, on port 80
  apus serve public --tls              also https://localhost:8443/ with a local certificate
  apus serve /etc/apus/apus.toml --workers 2
  apus serve site/apus.toml --tls      local certificates for sites that name none")]
    Serve(ServeArguments),
    /// Report every mistake of a configuration, with its place
    ///
    /// Reads the configuration and the files it names, as a start would, and starts nothing.
    #[command(after_long_help = "\
Examples:
  apus check                           ./apus.toml
  apus check sites.toml --json         for an editor or a pipeline")]
    Check {
        /// The configuration [default: ./apus.toml]
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
        /// For a server that is started with --tls: sites need not name a certificate
        #[arg(long)]
        tls: bool,
        /// Report in JSON
        #[arg(long)]
        json: bool,
    },
    /// Have the running server go on with its new configuration
    ///
    /// Returns when the new one serves. If it has mistakes, they are reported, and the old one
    /// goes on serving. Open connections live on either way.
    Reload(RunningServer),
    /// Have the running server answer what it was asked, and end
    Stop(RunningServer),
    /// Show what the running server does
    #[command(after_long_help = "\
Examples:
  apus status
  apus status --socket /run/shop/control.sock     an application in Rust, with its routes
  apus status site.toml --metrics > /var/lib/prometheus/node-exporter/apus.prom")]
    Status(StatusArguments),
    /// Have the running server ask an origin or not
    ///
    /// Goes before what the configuration says of the node, until it is told something else or ends.
    /// `apus status` shows groups and nodes.
    #[command(after_long_help = "\
Examples:
  apus upstream drain app 10.0.0.1:9501           no new clients, for a node with `sticky`
  apus upstream down example.com/app 10.0.0.1:9501
  apus upstream up app 10.0.0.1:9501 --config site.toml")]
    Upstream(UpstreamArguments),
    /// Fill the cache of the running server, and take answers out of it
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Show which site, location and file a request meets, and why
    ///
    /// Puts the request through the services that the configuration makes, without a connection
    /// and without a running server. The path is sent as it is written. No origin is asked.
    #[command(after_long_help = "\
Examples:
  apus explain GET https://example.com/docs
  apus explain GET http://localhost/a.css --header 'Accept-Encoding: br' --config site.toml")]
    Explain(ExplainArguments),
    /// Make a project with the framework
    ///
    /// Makes the folder NAME in the current one: an application with pages, a JSON handler and tests,
    /// a Dockerfile and a unit for systemd. Nothing is made if the folder exists.
    #[command(after_long_help = "\
Examples:
  apus new my-shop && cd my-shop && cargo run
  apus new my-shop --path ~/apus/crates/web     on another source of the crate `apus`")]
    New {
        /// The name of the project, its package and its folder
        name: ProjectName,
        /// Where the crate `apus` is [default: crates/web of the source that this apus was built from]
        ///
        /// It is not published, so Cargo.toml names its source by this path. A checkout of Apus does
        /// as well as its crates/web.
        #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
        path: Option<PathBuf>,
    },
    /// Print completions for a shell
    #[command(after_long_help = "\
Examples:
  apus completions bash > ~/.local/share/bash-completion/completions/apus
  apus completions zsh > ~/.zfunc/_apus
  apus completions fish > ~/.config/fish/completions/apus.fish")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, of apus or of one of its commands
    #[command(after_long_help = "\
Examples:
  apus man | man -l -
  apus man serve > apus-serve.1
  apus man cache-purge | man -l -")]
    Man {
        /// The command
        command: Option<String>,
    },
}

/// Arguments of `apus serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// A folder, or a configuration [default: ./apus.toml, else the current folder]
    #[arg(value_name = "DIR|FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: Option<PathBuf>,
    /// Where to serve a folder: PORT, ADDRESS:PORT or unix:PATH [default: 127.0.0.1:8080]
    ///
    /// A port alone is open to all addresses of this machine. Port 0 picks a free one. Without
    /// this, the next free port is taken if the default one is in use.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<ListenArgument>,
    /// Worker threads, in place of what the configuration says [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Serve over HTTPS with certificates of a local authority
    ///
    /// The authority is made once, in ~/.local/share/apus/ca. A folder is served over HTTPS too:
    /// with --listen, that address speaks HTTPS; without, HTTP stays at its port and HTTPS is at
    /// 127.0.0.1:8443. Of a configuration, the sites with `listen_tls` that name no certificate
    /// get one.
    #[arg(long)]
    pub(crate) tls: bool,
    /// Show the first address in the browser
    #[arg(long)]
    pub(crate) open: bool,
    /// The user to become when started as root [default: www-data, or nobody]
    ///
    /// In place of what the configuration says. With `root` the server stays root.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
}

/// Arguments of the commands for a server that runs.
#[derive(Debug, Args)]
pub(crate) struct RunningServer {
    /// What `apus serve` was given [default: ./apus.toml, else the current folder]
    #[arg(value_name = "DIR|FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: Option<PathBuf>,
    /// The control socket, of an application in Rust for one
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, conflicts_with = "source")]
    pub(crate) socket: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `apus status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) running: RunningServer,
    /// Answer with every figure as a metric, in the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    pub(crate) metrics: bool,
}

/// Arguments of `apus upstream`.
#[derive(Debug, Args)]
pub(crate) struct UpstreamArguments {
    /// What becomes of the node
    pub(crate) change: NodeCommand,
    /// The name of its group, with that of the site and a slash before it where several have one
    pub(crate) group: String,
    /// The name of the node: its address, if it has no other
    pub(crate) node: String,
    /// What `apus serve` was given [default: ./apus.toml, else the current folder]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) config: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What becomes of a node.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum NodeCommand {
    /// It gets requests
    Up,
    /// It gets only requests of clients that a sticky cookie keeps with it
    Drain,
    /// It gets no requests
    Down,
}

/// Work on the cache.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Take answers out of the cache
    ///
    /// Returns when they will not come back after a crash, either. What is being fetched meanwhile is
    /// fetched again.
    #[command(after_long_help = "\
Examples:
  apus cache purge --url https://example.com/news
  apus cache purge --prefix https://example.com/img/ --soft
  apus cache purge --tag product-7 --site example.com
  apus cache purge --all --config site.toml")]
    Purge(PurgeArguments),
    /// Fetch what a list or a sitemap names, so that it is in the cache
    ///
    /// Everything is fetched from the running server on this machine, whatever the names of the URLs
    /// resolve to. Fails if one of them does.
    #[command(after_long_help = "\
Examples:
  apus cache warm urls.txt                            a URL in each line, or a sitemap
  apus cache warm https://example.com/sitemap.xml     the server's own, or one that names others")]
    Warm(WarmArguments),
}

/// Arguments of `apus cache warm`.
#[derive(Debug, Args)]
pub(crate) struct WarmArguments {
    /// A file, or the URL of a sitemap
    #[arg(value_name = "FILE|URL", value_hint = ValueHint::AnyPath)]
    pub(crate) list: String,
    /// What `apus serve` was given [default: ./apus.toml, else the current folder]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) config: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `apus cache purge`.
#[derive(Debug, Args)]
pub(crate) struct PurgeArguments {
    #[command(flatten)]
    pub(crate) what: PurgeTarget,
    /// Only of the site with this name
    #[arg(long, value_name = "NAME")]
    pub(crate) site: Option<String>,
    /// Only make them stale: they can be sent while they are refreshed, and if the origin fails
    #[arg(long)]
    pub(crate) soft: bool,
    /// What `apus serve` was given [default: ./apus.toml, else the current folder]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) config: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which answers are taken out.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct PurgeTarget {
    #[arg(long, value_hint = ValueHint::Url, help = "Those for this URL, in all forms")]
    pub(crate) url: Option<String>,
    #[arg(
        long,
        value_name = "URL",
        value_hint = ValueHint::Url,
        help = "Those for URLs that begin so"
    )]
    pub(crate) prefix: Option<String>,
    /// Those with this tag in Surrogate-Key, xkey or Cache-Tag
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// All
    #[arg(long)]
    pub(crate) all: bool,
}

/// Arguments of `apus explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    /// The method, such as GET
    pub(crate) method: String,
    #[arg(value_hint = ValueHint::Url, help = "The whole URL, such as https://example.com/a?b")]
    pub(crate) url: String,
    /// The configuration, or a folder [default: ./apus.toml, else the current folder]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) config: Option<PathBuf>,
    /// A field of the request; may be given several times
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = field)]
    pub(crate) headers: Vec<(String, String)>,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn field(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        None => Err("a field is a name, a colon and a value: 'Accept: text/html'".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_holds_together() {
        Arguments::command().debug_assert();
    }
}
