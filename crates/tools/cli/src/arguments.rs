//! The command line: the one definition from which parser, help, completions and manual are made.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use apus_bench::parse_duration;
use apus_server::ListenArgument;
use apus_server::control::OperatorRole;
use clap::builder::styling::{AnsiColor, Styles};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

use crate::bench::BenchArguments;
use crate::field_argument::field;
use crate::new::{FrameworkArguments, ProjectName, ProjectPart};
use crate::time_argument::{parse_moment, parse_time};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// A web server, reverse proxy and cache for static sites, applications and PHP, configured by one file or none.
#[derive(Debug, Parser)]
#[command(
    name = "apus",
    version,
    styles = STYLES,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Exit status: 0 success, 1 failure, 2 wrong arguments.",
    after_long_help = "\
Examples:
  apus serve public                    serve a folder at http://127.0.0.1:8080/
  apus serve public --tls --open       over HTTPS too, and open it in the browser
  apus check /etc/apus/apus.toml       report every mistake of a configuration
  apus serve /etc/apus/apus.toml       serve the sites of a configuration
  apus reload /etc/apus/apus.toml      apply the changed file; no request is lost
  apus explain GET https://example.com/a    why this request gets its response
  apus new my-shop                     create an application with the framework
  apus dev                             build it, run it, and follow its sources
  apus bench http://127.0.0.1:8080/    load it, and measure it

Environment:
  APUS_LOG    the log level, which overrides the configuration: debug, or warn,apus_net=trace
  NO_COLOR    disables colours if it is not empty

Exit status:
  0  success
  1  failure; the reason is on standard error
  2  an argument is wrong or missing"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Serve a folder, or the sites of a configuration
    ///
    /// Runs in the foreground. SIGINT and SIGTERM stop the server after its open requests; a second
    /// one stops it at once. SIGHUP reloads the configuration, SIGUSR1 reopens the access logs.
    #[command(after_long_help = "\
Examples:
  apus serve                           ./apus.toml, or else the current folder
  apus serve public                    a folder, at http://127.0.0.1:8080/ or the next free port
  apus serve public --listen 80        on port 80 of all addresses
  apus serve public --tls              also https://localhost:8443/ with a local certificate
  apus serve /etc/apus/apus.toml --workers 2
  apus serve site/apus.toml --tls      local certificates for sites without certificates")]
    Serve(ServeArguments),
    /// Report every mistake of a configuration, with its file and line
    ///
    /// Reads the configuration and all files that it names, as `apus serve` does, but starts nothing.
    ///
    /// Exit status: 0 if there are no mistakes (there may be warnings), 1 if there are some, 2 if there is no such file.
    #[command(after_long_help = "\
Examples:
  apus check                           ./apus.toml
  apus check public                    a folder, or the apus.toml in it
  apus check sites.toml --json         for an editor or a pipeline")]
    Check {
        /// The configuration file, or a folder with it or to serve [default: ./apus.toml]
        #[arg(value_name = "DIR|FILE", value_hint = ValueHint::AnyPath)]
        file: Option<PathBuf>,
        /// Check for `apus serve --tls`, with which sites need not name a certificate
        #[arg(long)]
        tls: bool,
        /// Report in JSON
        #[arg(long)]
        json: bool,
    },
    /// Reload the configuration of the running server
    ///
    /// Returns when the new configuration is in use. If it has mistakes, they are reported, and the
    /// server keeps the old one. Open connections and requests continue in both cases.
    Reload(RunningServer),
    /// Stop the running server after its open requests
    Stop(RunningServer),
    /// Show the status of the running server
    #[command(after_long_help = "\
Examples:
  apus status
  apus status --socket /run/shop/control.sock     an application in Rust, with its routes
  apus status --rules                             how often each rule applied
  apus status --errors                            the last warnings and errors of its log
  apus status --top                               the busiest sites, upstream nodes, clients and paths
  apus status site.toml --metrics > /var/lib/prometheus/node-exporter/apus.prom")]
    Status(StatusArguments),
    /// Show on a terminal what the running server does, with keys for what to do about it
    ///
    /// Sites, clients, paths, nodes of upstream groups, bans and the last errors, every two seconds. Keys sort a table, drain a node, ban a client and purge
    /// what is stored of a site, each with a question first. `apus status --top` prints the busiest without a terminal.
    #[command(after_long_help = "\
Examples:
  apus top
  apus top site.toml
  apus top --socket control.sock")]
    Top {
        /// The argument of `apus serve` [default: ./apus.toml, or else the current folder]
        #[arg(value_name = "DIR|FILE", value_hint = ValueHint::AnyPath)]
        source: Option<PathBuf>,
        /// The control socket, for example of an application in Rust
        #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, conflicts_with = "source")]
        socket: Option<PathBuf>,
    },
    /// Enable, drain or disable a node of an upstream group
    ///
    /// Overrides the configuration of the node until the next such command, or until the server ends.
    /// `apus status` shows groups and nodes.
    #[command(after_long_help = "\
Examples:
  apus upstream drain app 10.0.0.1:9501           only clients whose sticky cookie names it
  apus upstream drain app 10.0.0.1:9501 --wait    and wait until it has no request
  apus upstream down example.com/app 10.0.0.1:9501
  apus upstream up app 10.0.0.1:9501 --config site.toml")]
    Upstream(UpstreamArguments),
    /// List the sites of the running server, or turn their maintenance on and off
    #[command(subcommand)]
    Site(SiteCommand),
    /// List, add and remove bans of clients
    #[command(subcommand)]
    Ban(BanCommand),
    /// Log in at the address of the operator, make accounts for it, and show who changed what
    #[command(subcommand)]
    Admin(AdminCommand),
    /// Show and change the configuration of the running server: a change is tried, and rolled back when it makes things worse
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show what clients have used of quotas, and reset it
    #[command(subcommand)]
    Limit(LimitCommand),
    /// Fill or purge the cache of the running server
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Show, renew, revoke, import or forget certificates that are ordered by ACME
    #[command(subcommand)]
    Cert(CertCommand),
    /// Show which site, location and file a request is mapped to, and why
    ///
    /// Sends the request through the services of the configuration, without a connection and without
    /// a running server. The path is used as it is written. No request is sent to an origin.
    ///
    /// With --id, it asks the running server what happened to a request that it has served. The id is in the access log, in lines of the log about
    /// the request, and in its response where `request_id` is on.
    #[command(after_long_help = "\
Examples:
  apus explain GET https://example.com/docs
  apus explain GET http://localhost/a.css --header 'Accept-Encoding: br' --config site.toml
  apus explain --id 5f0c0f4f7d5b1a5c3a3f8d0d3c9f1b2e")]
    Explain(ExplainArguments),
    /// Sign a link for a location with `signed_url`
    ///
    /// Prints the URL with a signature, and with the time until which it is valid. The signature is of the path and the query as they
    /// are written, not of the scheme and the host.
    #[command(after_long_help = "\
Examples:
  apus sign-url --key-file links.key --expires-in 1h https://example.com/downloads/a.zip
  apus sign-url --key-file links.key '/downloads/a.zip?name=b'")]
    SignUrl(SignUrlArguments),
    /// Load a server and measure it
    ///
    /// Sends requests to one server over HTTP/1.1, HTTP/2 or HTTP/3, as fast as it responds (a closed loop) or at a rate (an open
    /// loop: --rate), and reports the rate, the latencies, each failure by name, and what the generator and a server of this
    /// machine consumed. One request is sent before the load. Ctrl-C ends the load early and reports what was measured.
    ///
    /// Exit status: 0 if all responses were good, 1 if not, or if the load could not begin.
    #[command(after_long_help = "\
Examples:
  apus bench http://127.0.0.1:8080/                         50 connections, 10 seconds
  apus bench http://127.0.0.1:8080/ -c 200 -t 2 -d 30s
  apus bench http://127.0.0.1:8080/ --rate 2k               2,000 requests per second, whatever the server does
  apus bench http://127.0.0.1:8080/ --rate 1k:10s,1k..5k:30s,5k --poisson -d 60s
  apus bench https://localhost:8443/ --cacert ca.pem -n 10000 --close --no-resumption
  apus bench http://127.0.0.1:8080/form -X POST --body-file form.txt -H 'content-type: application/x-www-form-urlencoded'
  apus bench http://127.0.0.1:8080/a http://127.0.0.1:8080/b --weight 9 --weight 1
  apus bench https://localhost:8443/ --insecure --http2 -c 10 -m 20          20 streams over each of 10 connections
  apus bench https://localhost:8443/ --insecure --http3 --close              a QUIC handshake for each request
  apus bench http://127.0.0.1:8080/ --find-max --slo p99=20ms,errors=0       the highest rate that keeps it
  apus bench http://127.0.0.1:8080/ --html report.html                       a page with plots
  apus bench --as wrk -t4 -c400 -d30s http://127.0.0.1:8080/
  apus bench http://127.0.0.1:8080/ --status 200 --length 1024 --json")]
    Bench(Box<BenchArguments>),
    /// Create a project with the framework
    ///
    /// Creates the folder NAME in the current folder: an application with pages, a JSON handler and
    /// tests, a Dockerfile and a systemd unit. Fails if the folder exists.
    #[command(after_long_help = "\
Examples:
  apus new my-shop && cd my-shop && cargo run
  apus new my-shop --with login,db              accounts, and a database
  apus new my-shop --path ~/apus                the crate `apus` of a checkout
  apus new my-shop --git https://git.example.com/apus.git --tag v0.1.0")]
    New {
        /// The name of the project, its package and its folder
        name: ProjectName,
        /// What the project begins with, separated by commas
        #[arg(long, value_name = "PARTS", value_delimiter = ',')]
        with: Vec<ProjectPart>,
        #[command(flatten)]
        source: FrameworkArguments,
    },
    /// Develop an application of the framework: build, run, and follow its sources
    ///
    /// Builds the application of the current folder with Cargo and runs it behind a proxy. After a change of a source file,
    /// it is built and restarted, while requests wait; the browser loads the page again. Errors of the compiler and panics
    /// of handlers are shown in the page. Changes of templates and static files need no build. The application listens on
    /// a Unix socket (APUS_DEV_SOCKET) in place of its own addresses.
    #[command(after_long_help = "\
Examples:
  apus dev                              at http://127.0.0.1:8080/ or the next free port
  apus dev --tls --open                 also https://localhost:8443/ with a local certificate
  apus dev --package shop --listen 3000 -- --database test.db")]
    Dev(DevArguments),
    /// Create migrations, and run them on the database of a project
    ///
    /// All but `new` build and run the program of the project in the current folder, as `cargo run -- db migrate`. Where only
    /// the program is, it takes the same arguments: `my-shop db migrate`. The program responds to them by `Db::commands`.
    #[command(
        subcommand,
        after_long_help = "\
Examples:
  apus db new add-email                creates migrations/0002_add_email.sql and the file that undoes it
  apus db migrate --dry-run            print the statements that would run
  apus db migrate
  apus db rollback --steps 2
  apus db status --json"
    )]
    Db(DatabaseCommand),
    /// Look at the jobs of a project, and retry or forget those that failed too often
    ///
    /// Builds and runs the program of the project in the current folder, as `cargo run -- jobs list`. Where only the program
    /// is, it takes the same arguments: `my-shop jobs list`. The program responds to them by `Jobs::commands`.
    #[command(
        subcommand,
        after_long_help = "\
Examples:
  apus jobs status
  apus jobs list --queue mails
  apus jobs retry --all
  apus jobs forget 0199d1c0a3e15f0b7c9d2e4f6a8b1c3d"
    )]
    Jobs(JobsCommand),
    /// Print the completion script of a shell
    #[command(after_long_help = "\
Examples:
  apus completions bash > ~/.local/share/bash-completion/completions/apus
  apus completions zsh > ~/.zfunc/_apus
  apus completions fish > ~/.config/fish/completions/apus.fish")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page of apus or of one of its commands
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
    /// A folder or a configuration file [default: ./apus.toml, or else the current folder]
    #[arg(value_name = "DIR|FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: Option<PathBuf>,
    /// The address for a folder: PORT, ADDRESS:PORT or unix:PATH [default: 127.0.0.1:8080]
    ///
    /// A port alone listens on all addresses of this machine. Port 0 selects a free port. Without
    /// this option, the next free port is used if the default one is in use.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<ListenArgument>,
    /// The number of worker threads, which overrides the configuration [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Serve over HTTPS with certificates of a local certificate authority
    ///
    /// The authority is created once, in ~/.local/share/apus/ca. With --listen, a folder is served
    /// over HTTPS at that address; without it, over HTTP as usual and over HTTPS at 127.0.0.1:8443.
    /// In a configuration, sites with `listen_tls` and without a certificate get a local one.
    #[arg(long)]
    pub(crate) tls: bool,
    /// Open the first address in the browser
    #[arg(long)]
    pub(crate) open: bool,
    /// The user to run as when started as root [default: www-data, or nobody]
    ///
    /// Overrides the configuration. With `root` the server stays root.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
}

/// Arguments of `apus dev`.
#[derive(Debug, Args)]
pub(crate) struct DevArguments {
    /// The address: PORT, ADDRESS:PORT or unix:PATH [default: 127.0.0.1:8080]
    ///
    /// A port alone listens on all addresses of this machine, whose users then see excerpts of the sources with errors. Port
    /// 0 selects a free port. Without this option, the next free port is used if the default one is in use.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<ListenArgument>,
    /// A name by which browsers may call it; can be repeated
    ///
    /// It responds at localhost with the names below it, at loopback addresses, and at the address of --listen; requests for other hosts
    /// are refused, as they come from pages of other sites (DNS rebinding).
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// Serve over HTTPS with a certificate of the local certificate authority
    ///
    /// With --listen, at that address; without it, over HTTP as usual and over HTTPS at 127.0.0.1:8443.
    #[arg(long)]
    pub(crate) tls: bool,
    /// Open the first address in the browser
    #[arg(long)]
    pub(crate) open: bool,
    /// The package of the workspace [default: the package of the current folder]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) package: Option<String>,
    /// The program of the package [default: its only one, or `default-run`]
    #[arg(long, value_name = "NAME")]
    pub(crate) bin: Option<String>,
    /// Features to build with, as Cargo takes them; can be repeated
    #[arg(long, short = 'F', value_name = "FEATURES")]
    pub(crate) features: Vec<String>,
    /// Build with optimisations
    #[arg(long, short)]
    pub(crate) release: bool,
    /// Arguments of the application
    #[arg(last = true, value_name = "ARGUMENTS")]
    pub(crate) arguments: Vec<OsString>,
}

/// Arguments of the commands for a server that runs.
#[derive(Debug, Args)]
pub(crate) struct RunningServer {
    /// The argument of `apus serve` [default: ./apus.toml, or else the current folder]
    #[arg(value_name = "DIR|FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: Option<PathBuf>,
    /// The control socket, for example of an application in Rust
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, conflicts_with = "source")]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The subcommands of `apus cert`.
#[derive(Debug, Subcommand)]
pub(crate) enum CertCommand {
    /// Show names, expiry, renewal and failures
    List {
        #[command(flatten)]
        running: RunningServer,
        /// The same as the argument, as for the other commands
        #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath, conflicts_with_all = ["source", "socket"])]
        config: Option<PathBuf>,
    },
    /// Show serial number, issuer, key, lifetime and file of a certificate, or of all
    ///
    /// Reads the folder of certificates, and needs no running server.
    Show {
        /// A name of the certificate [default: all certificates]
        name: Option<String>,
        #[command(flatten)]
        folder: CertificateFolder,
    },
    /// Order a new certificate now
    ///
    /// The old one stays in use until there is a new one. Waits for it, shows on a terminal what the order does, and fails with
    /// the words of the certificate authority.
    Renew {
        /// A name of the certificate
        name: String,
        /// Return when the order has begun
        #[arg(long)]
        no_wait: bool,
        #[command(flatten)]
        folder: CertificateFolder,
    },
    /// Revoke a certificate at its authority
    ///
    /// A running server orders another one with a new private key within seconds. Needs no running server.
    #[command(after_long_help = "\
Examples:
  apus cert revoke example.com --reason key-compromise")]
    Revoke {
        /// A name of the certificate
        name: String,
        /// The reason, which the authority publishes
        #[arg(long, value_enum, default_value_t = RevocationArgument::Unspecified)]
        reason: RevocationArgument,
        #[command(flatten)]
        folder: CertificateFolder,
    },
    /// Remove a certificate that no site uses any more, with its private key
    ///
    /// It is not revoked. Needs no running server.
    Forget {
        /// A name of the certificate
        name: String,
        #[command(flatten)]
        folder: CertificateFolder,
    },
    /// Take over certificates of certbot, acme.sh or Caddy
    ///
    /// Copies those that the sites of the configuration would order: a site is served with its old certificate from the start,
    /// and the certificate is renewed in time. The folder is only read. A running server notices it.
    #[command(after_long_help = "\
Examples:
  apus cert import /etc/letsencrypt                    certbot
  apus cert import ~/.acme.sh                          acme.sh
  apus cert import /var/lib/caddy/.local/share/caddy   Caddy")]
    Import {
        /// The folder of the other program
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        from: PathBuf,
        #[command(flatten)]
        folder: CertificateFolder,
    },
}

/// The configuration of the certificates, and the form of the output.
#[derive(Debug, Args)]
pub(crate) struct CertificateFolder {
    /// The argument of `apus serve` [default: ./apus.toml, or else the current folder]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Why a certificate is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RevocationArgument {
    /// No reason is given
    Unspecified,
    /// Others may know the private key
    KeyCompromise,
    /// The names belong to somebody else now
    AffiliationChanged,
    /// Another certificate replaces it
    Superseded,
    /// The names are no longer used
    CessationOfOperation,
}

/// Arguments of `apus status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) running: RunningServer,
    /// Print all numbers as metrics, in the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    pub(crate) metrics: bool,
    /// Show how often each rule applied
    #[arg(long, conflicts_with = "metrics")]
    pub(crate) rules: bool,
    /// Show the last warnings and errors of the server's log
    #[arg(long, conflicts_with_all = ["metrics", "rules"])]
    pub(crate) errors: bool,
    /// Show the busiest sites, upstream nodes, clients and paths
    ///
    /// The server counts requests only for a minute after such a command. A terminal is refreshed every two seconds, until
    /// Ctrl-C. Otherwise the first such command shows what was counted in three seconds, and the next ones what was
    /// counted since then.
    #[arg(long, conflicts_with_all = ["metrics", "rules", "errors"])]
    pub(crate) top: bool,
    /// Begin to count anew, and show what was counted after this time, such as 10s or 5m
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, requires = "top")]
    pub(crate) time: Option<Duration>,
}

/// Arguments of `apus upstream`.
#[derive(Debug, Args)]
pub(crate) struct UpstreamArguments {
    /// The new state of the node
    pub(crate) change: NodeCommand,
    /// The name of its group; SITE/GROUP if several sites have a group of this name
    pub(crate) group: String,
    /// The name of the node, or its address if it has no name
    pub(crate) node: String,
    /// Wait until no request is under way at the node
    ///
    /// Shows on a terminal how many there are. Exit status: 0 if there are none, 1 after the time-out.
    #[arg(long)]
    pub(crate) wait: bool,
    /// How long to wait, such as 90s, 5m or 1h
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_duration, requires = "wait")]
    pub(crate) timeout: Duration,
    /// The argument of `apus serve` [default: ./apus.toml, or else the current folder]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum NodeCommand {
    /// The node gets requests
    Up,
    /// The node gets only requests of clients whose sticky cookie names it
    Drain,
    /// The node gets no requests
    Down,
}

/// The subcommands of `apus site`.
#[derive(Debug, Subcommand)]
pub(crate) enum SiteCommand {
    /// Show the sites of the running server, and which are in maintenance
    List {
        #[command(flatten)]
        running: RunningServer,
        /// The same as the argument, as for the other commands
        #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath, conflicts_with_all = ["source", "socket"])]
        config: Option<PathBuf>,
    },
    /// Turn the maintenance of a site on or off, without a reload
    ///
    /// During maintenance, requests get 503 with Retry-After, except from the networks of `maintenance.allow` of the site. The command takes
    /// precedence over the configuration, over reloads and restarts too, until it is given `config`.
    #[command(after_long_help = "\
Examples:
  apus site maintenance shop.example on
  apus site maintenance shop.example on --until 2h
  apus site maintenance shop.example on --until 2026-12-01T06:00:00Z
  apus site maintenance shop.example off
  apus site maintenance shop.example config      as the configuration says")]
    Maintenance(MaintenanceArguments),
}

/// Arguments of `apus site maintenance`.
#[derive(Debug, Args)]
pub(crate) struct MaintenanceArguments {
    /// The name of the site, as `apus site list` shows it
    pub(crate) name: String,
    /// What holds from now on
    pub(crate) change: MaintenanceArgument,
    /// When it ends: a time from now such as 30m or 2h, or a date and time
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) until: Option<SystemTime>,
    /// The argument of `apus serve` [default: ./apus.toml, or else the current folder]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `apus site maintenance` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MaintenanceArgument {
    /// The site is in maintenance
    On,
    /// It is not
    Off,
    /// It is, if the configuration says so
    Config,
}

/// The subcommands of `apus ban`.
#[derive(Debug, Subcommand)]
pub(crate) enum BanCommand {
    /// Show which clients are banned, until when and why, and the lists of networks
    List {
        #[command(flatten)]
        running: RunningServer,
        /// The same as the argument, as for the other commands
        #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath, conflicts_with_all = ["source", "socket"])]
        config: Option<PathBuf>,
    },
    /// Ban an address or a network
    ///
    /// New connections of its clients are closed at once, before TLS, and open ones end at their next request. Returns when the ban would survive
    /// a crash. An address of IPv6 stands for its network of 64 bits; ADDRESS/128 is one address.
    #[command(after_long_help = "\
Examples:
  apus ban add 203.0.113.9 --for 1h --reason 'guesses passwords'
  apus ban add 198.51.100.0/24
  apus ban add 2001:db8::/48 --for 7d")]
    Add {
        /// The address, or the network such as 10.0.0.0/8
        network: String,
        /// For how long, such as 30m, 1h or 7d [default: until it is removed]
        #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
        time: Option<Duration>,
        /// Why, for the list and the log
        #[arg(long, default_value = "by command")]
        reason: String,
        /// Ban networks that are never banned otherwise: loopback and proxies
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        server: BanServer,
    },
    /// End the ban of an address or a network
    Remove {
        /// The address or network, as `apus ban list` shows it
        network: String,
        #[command(flatten)]
        server: BanServer,
    },
}

/// The subcommands of `apus config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the configuration in force, with its secrets hidden
    Show {
        /// The number of a version that was in force before, to see what it changed
        #[arg(value_name = "N")]
        id: Option<u64>,
        #[command(flatten)]
        server: BanServer,
    },
    /// Try another configuration file: it is in force at once, without a lost request
    ///
    /// It is rolled back when more requests of a site fail with 5xx than before, when the last node of an upstream group fails, and at the end of
    /// the time unless `apus config confirm` keeps it. Secrets that `apus config show` hides may stay hidden. Waits for the end.
    #[command(after_long_help = "\
Examples:
  apus config show > new.toml
  apus config try new.toml                          and in another terminal: apus config confirm
  apus config try new.toml --seconds 300 --keep     kept if nothing gets worse in five minutes
  apus config try new.toml --write                  written to the file once it is kept")]
    Try {
        /// The file
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        #[command(flatten)]
        trial: TrialArguments,
    },
    /// Try other values of single keys
    #[command(after_long_help = "\
Examples:
  apus config set global.workers=4
  apus config set sites.shop.root=public2 sites.shop.listen='[80, 8080]'
  apus config set sites.shop.upstream=              removes the key")]
    Set {
        /// A key with its tables, which are named by their `name` or their number from 0, and its value: JSON, or else text
        #[arg(value_name = "KEY=VALUE", required = true)]
        keys: Vec<String>,
        #[command(flatten)]
        trial: TrialArguments,
    },
    /// Show the change that is tried, or what became of the last one
    Status {
        #[command(flatten)]
        server: BanServer,
    },
    /// Keep the change that is tried
    Confirm {
        #[command(flatten)]
        server: BanServer,
    },
    /// End the change that is tried: the version before is in force again
    Rollback {
        #[command(flatten)]
        server: BanServer,
    },
    /// List the versions that were in force: when, by whom, and what became of them
    Versions {
        #[command(flatten)]
        server: BanServer,
    },
    /// Try a version that was in force before
    Restore {
        /// Its number
        #[arg(value_name = "N")]
        id: u64,
        #[command(flatten)]
        trial: TrialArguments,
    },
}

/// How a change of the configuration is tried.
#[derive(Debug, Args)]
pub(crate) struct TrialArguments {
    /// How long it is tried, up to an hour; 0 keeps it at once
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Keep it after that time also if nobody confirms it
    #[arg(long)]
    pub(crate) keep: bool,
    /// Write it to the configuration file when it is kept
    #[arg(long)]
    pub(crate) write: bool,
    /// Why, for the list of versions
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) server: BanServer,
}

/// The subcommands of `apus admin`.
#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// Make a link with which you can log in once, within five minutes
    ///
    /// The link has all roles, as whoever may ask the control socket can do everything anyway.
    Login {
        #[command(flatten)]
        server: BanServer,
    },
    /// Print the lines of a new account, for the file that `admin_accounts` names
    ///
    /// The secret is made and shown once, on standard error; the lines have only its hash.
    #[command(after_long_help = "\
Examples:
  apus admin account ana --role configure >> accounts.toml
  apus admin account deploy --role operate --site shop --token >> accounts.toml
  pass show apus | apus admin account ana --password-stdin >> accounts.toml")]
    Account(AccountArguments),
    /// Show what was changed in the running server, by whom, the last change first
    Audit {
        #[command(flatten)]
        server: BanServer,
    },
}

/// The arguments of `apus admin account`.
#[derive(Debug, Args)]
pub(crate) struct AccountArguments {
    /// The name, which the audit log shows
    pub(crate) name: String,
    /// What it may do: see what happens; also ban, purge, drain, reload and turn maintenance on and off; also read the audit log
    #[arg(long, default_value = "read", value_parser = PossibleValuesParser::new(OperatorRole::ALL.map(OperatorRole::name))
        .try_map(|name| OperatorRole::named(&name).ok_or("no role")))]
    pub(crate) role: OperatorRole,
    /// A site that it is for; may be given several times [default: all, and the server]
    #[arg(long, value_name = "NAME")]
    pub(crate) site: Vec<String>,
    /// Make a token for a program in place of a password
    #[arg(long, conflicts_with = "password_stdin")]
    pub(crate) token: bool,
    /// Take the client certificate in this file, PEM, in place of a password; `admin_tls` has its authority
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["password_stdin", "token"])]
    pub(crate) certificate: Option<PathBuf>,
    /// Read the password from standard input in place of making one
    #[arg(long)]
    pub(crate) password_stdin: bool,
}

/// The server, and the form of the output.
#[derive(Debug, Args)]
pub(crate) struct BanServer {
    /// The argument of `apus serve` [default: ./apus.toml, or else the current folder]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The subcommands of `apus limit`.
#[derive(Debug, Subcommand)]
pub(crate) enum LimitCommand {
    /// Show what each client has used of each quota, those that used most first
    ///
    /// A key that may be a secret, as one of a field or a cookie, is shown as `#` and a number.
    List {
        /// Only the limits with this name
        name: Option<String>,
        #[command(flatten)]
        server: BanServer,
    },
    /// Give a client its whole quota again, or all clients
    ///
    /// Returns when that would survive a crash.
    #[command(after_long_help = "\
Examples:
  apus limit reset api 203.0.113.9
  apus limit reset api '#0123456789abcdef'
  apus limit reset api --all")]
    Reset {
        /// The name of the limit
        name: String,
        /// The client or another value of the key, or as `apus limit list` shows it
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        key: Option<String>,
        /// Reset all keys
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        server: BanServer,
    },
}

/// Work on the cache.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Remove responses from the cache
    ///
    /// Returns when the purge is durable: the responses do not come back after a crash. Responses that
    /// are being fetched meanwhile are fetched again.
    #[command(after_long_help = "\
Examples:
  apus cache purge --url https://example.com/news
  apus cache purge --prefix https://example.com/img/ --soft
  apus cache purge --tag product-7 --site example.com
  apus cache purge --all --config site.toml")]
    Purge(PurgeArguments),
    /// Fetch the URLs of a list or a sitemap into the cache
    ///
    /// All requests go to the running server on this machine, whatever the hosts of the URLs resolve
    /// to. Fails if one of the requests fails.
    #[command(after_long_help = "\
Examples:
  apus cache warm urls.txt                            one URL per line, or a sitemap
  apus cache warm https://example.com/sitemap.xml     a sitemap or an index of sitemaps")]
    Warm(WarmArguments),
    /// List the largest stored responses, or those for a URL, a prefix or a tag
    #[command(after_long_help = "\
Examples:
  apus cache list                                     the largest ones
  apus cache list --url https://example.com/news      all variants of one URL
  apus cache list --tag product-7 --most 1000 --json")]
    List(CacheListArguments),
}

/// Arguments of `apus cache list`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("scope").args(["url", "prefix", "tag"])))]
pub(crate) struct CacheListArguments {
    /// Responses for this URL, with all their variants
    #[arg(long, value_hint = ValueHint::Url)]
    pub(crate) url: Option<String>,
    /// Responses for all URLs that begin with this one
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) prefix: Option<String>,
    /// Responses with this tag in Surrogate-Key, xkey or Cache-Tag
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// Only responses of the site with this name
    #[arg(long, value_name = "NAME")]
    pub(crate) site: Option<String>,
    /// How many, up to 1000
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) most: u64,
    #[command(flatten)]
    pub(crate) server: BanServer,
}

/// Arguments of `apus cache warm`.
#[derive(Debug, Args)]
pub(crate) struct WarmArguments {
    /// A file, or the URL of a sitemap
    #[arg(value_name = "FILE|URL", value_hint = ValueHint::AnyPath)]
    pub(crate) list: String,
    /// The argument of `apus serve` [default: ./apus.toml, or else the current folder]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `apus cache purge`.
#[derive(Debug, Args)]
pub(crate) struct PurgeArguments {
    #[command(flatten)]
    pub(crate) what: PurgeTarget,
    /// Only responses of the site with this name
    #[arg(long, value_name = "NAME")]
    pub(crate) site: Option<String>,
    /// Mark the responses as stale: they may be sent during revalidation, or if the origin fails
    #[arg(long)]
    pub(crate) soft: bool,
    /// The argument of `apus serve` [default: ./apus.toml, or else the current folder]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The responses to remove.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct PurgeTarget {
    #[arg(long, value_hint = ValueHint::Url, help = "Responses for this URL, with all their variants")]
    pub(crate) url: Option<String>,
    #[arg(
        long,
        value_name = "URL",
        value_hint = ValueHint::Url,
        help = "Responses for all URLs that begin with this one"
    )]
    pub(crate) prefix: Option<String>,
    /// Responses with this tag in Surrogate-Key, xkey or Cache-Tag
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// All responses
    #[arg(long)]
    pub(crate) all: bool,
}

/// Arguments of `apus sign-url`.
#[derive(Debug, Args)]
pub(crate) struct SignUrlArguments {
    /// The file with the key, as in `signed_url`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key_file: PathBuf,
    /// How long the link is valid, such as 90s, 5m or 1h [default: always]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "expires_at")]
    pub(crate) expires_in: Option<Duration>,
    /// The last second in which the link is valid, in seconds since 1970
    #[arg(long, value_name = "SECOND")]
    pub(crate) expires_at: Option<u64>,
    #[arg(value_hint = ValueHint::Url, help = "The URL, or its path with the query", value_parser = SignedTarget::parse)]
    pub(crate) url: SignedTarget,
}

/// The parts of a URL that is signed.
#[derive(Clone, Debug)]
pub(crate) struct SignedTarget {
    /// The scheme and the host, or nothing.
    pub(crate) origin: String,
    /// The path and the query.
    pub(crate) path: String,
}

impl SignedTarget {
    fn parse(text: &str) -> Result<Self, String> {
        let after_scheme = text.find("://").map_or(0, |at| at.saturating_add(3));
        let rest = text.get(after_scheme..).unwrap_or_default();
        let path = rest.find('/').map(|at| at.saturating_add(after_scheme));
        let path = path.filter(|at| *at == 0 || after_scheme > 0);
        let (origin, path) = path
            .and_then(|at| text.split_at_checked(at))
            .ok_or("expected a URL or a path, such as /downloads/a.zip")?;
        if path.contains('#') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("spaces, `#` and letters beyond ASCII are percent-encoded in URLs".into());
        }
        Ok(Self {
            origin: origin.to_owned(),
            path: path.to_owned(),
        })
    }
}

/// Arguments of `apus explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    /// The method, such as GET
    #[arg(required_unless_present = "id")]
    pub(crate) method: Option<String>,
    #[arg(value_hint = ValueHint::Url, required_unless_present = "id", help = "The whole URL, such as https://example.com/a?b")]
    pub(crate) url: Option<String>,
    /// Tell what happened to the request with this id, one of the last that the running server has served
    #[arg(long, conflicts_with_all = ["method", "url", "headers"])]
    pub(crate) id: Option<String>,
    /// The control socket of the running server, for --id
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, conflicts_with_all = ["config", "method", "url"])]
    pub(crate) socket: Option<PathBuf>,
    /// A configuration file or a folder [default: ./apus.toml, or else the current folder]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) config: Option<PathBuf>,
    /// A header field of the request; can be repeated
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = field)]
    pub(crate) headers: Vec<(String, String)>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do with the database of a project.
#[derive(Debug, Subcommand)]
pub(crate) enum DatabaseCommand {
    /// Create the files of a new migration
    ///
    /// Creates NUMBER_NAME.sql and NUMBER_NAME.down.sql, which undoes it. If the folder has folders for database
    /// systems, sqlite, postgres or mysql, the files are created in each.
    New {
        /// What the migration does, as add-email
        name: String,
        /// The folder of the migrations
        #[arg(long, value_name = "DIR", default_value = "migrations", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
    /// Run the migrations that did not run yet
    Migrate {
        #[command(flatten)]
        program: ProjectProgram,
        /// Print the statements, and run none
        #[arg(long)]
        dry_run: bool,
    },
    /// Undo the migrations that ran last
    Rollback {
        #[command(flatten)]
        program: ProjectProgram,
        /// How many
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        steps: u32,
        /// Print the statements, and run none
        #[arg(long)]
        dry_run: bool,
    },
    /// List the migrations, and whether they ran
    ///
    /// Fails if a migration was changed after it ran, is missing, or failed.
    Status {
        #[command(flatten)]
        program: ProjectProgram,
        /// Report in JSON
        #[arg(long)]
        json: bool,
    },
    /// Fill the database with the data of the application
    Seed {
        #[command(flatten)]
        program: ProjectProgram,
    },
}

/// What to do with the jobs of a project.
#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// Count the jobs that wait, run and are dead
    Status {
        #[command(flatten)]
        queue: ProjectQueue,
        /// Report in JSON
        #[arg(long)]
        json: bool,
    },
    /// List the dead jobs, those that failed last first
    List {
        #[command(flatten)]
        queue: ProjectQueue,
        /// How many
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
        /// Report in JSON
        #[arg(long)]
        json: bool,
    },
    /// Make dead jobs due again, with all their attempts
    Retry {
        #[command(flatten)]
        queue: ProjectQueue,
        #[command(flatten)]
        jobs: SelectedJobs,
    },
    /// Remove dead jobs
    Forget {
        #[command(flatten)]
        queue: ProjectQueue,
        #[command(flatten)]
        jobs: SelectedJobs,
    },
}

/// A queue of a project.
#[derive(Debug, Args)]
pub(crate) struct ProjectQueue {
    #[command(flatten)]
    pub(crate) program: ProjectProgram,
    /// Another queue than `default`
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
}

/// Dead jobs.
#[derive(Debug, Args)]
#[group(required = true)]
pub(crate) struct SelectedJobs {
    /// The identities of jobs, as `list` shows them
    #[arg(value_name = "ID", conflicts_with = "all")]
    pub(crate) ids: Vec<String>,
    /// All dead jobs of the queue
    #[arg(long)]
    pub(crate) all: bool,
}

/// The program of a project.
#[derive(Debug, Args)]
pub(crate) struct ProjectProgram {
    /// The package of the program, in a workspace
    #[arg(long, value_name = "NAME")]
    pub(crate) package: Option<String>,
    /// The program, if the package has several
    #[arg(long, value_name = "NAME")]
    pub(crate) bin: Option<String>,
    /// Build it for release
    #[arg(long)]
    pub(crate) release: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_valid() {
        Arguments::command().debug_assert();
    }
}
