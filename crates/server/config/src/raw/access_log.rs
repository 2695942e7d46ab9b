//! The keys of access logs.

use serde_json::json;
use toml::de::DeValue;

use crate::description::TypeDescription;
use crate::keys::{ConfigReader, KeyType, ValueNode, choices, keys};
use crate::string_type::receiver::{AppName, ParameterName, ReceiverAddress};
use crate::value::{FilePath, OneOrMore, Share, Text, Time};
use crate::when::When;

choices! {
    /// The facility of messages (RFC 5424 section 6.2.1), by the names of syslog(3).
    pub(crate) Facility: "a facility of syslog" {
        /// The kernel, as which no program writes.
        Kern = "kern",
        /// Programs of users.
        User = "user",
        /// Mail.
        Mail = "mail",
        /// Servers.
        Daemon = "daemon",
        /// Log-in.
        Auth = "auth",
        /// Syslog itself.
        Syslog = "syslog",
        /// Printers.
        Lpr = "lpr",
        /// News.
        News = "news",
        /// UUCP.
        Uucp = "uucp",
        /// Schedules.
        Cron = "cron",
        /// Log-in, for the administrators alone.
        Authpriv = "authpriv",
        /// FTP.
        Ftp = "ftp",
        /// For local use.
        Local0 = "local0",
        /// For local use.
        Local1 = "local1",
        /// For local use.
        Local2 = "local2",
        /// For local use.
        Local3 = "local3",
        /// For local use.
        Local4 = "local4",
        /// For local use.
        Local5 = "local5",
        /// For local use.
        Local6 = "local6",
        /// For local use.
        Local7 = "local7",
    }
}

choices! {
    /// The form of messages to syslog.
    pub(crate) SyslogForm: "a form of syslog messages" {
        /// RFC 5424.
        Rfc5424 = "rfc5424",
        /// RFC 3164.
        Rfc3164 = "rfc3164",
    }
}

keys! {
    /// An access log. It has at least one of `path`, `syslog` and `journald`.
    pub(crate) struct AccessLog {
        /// The file; `/dev/stdout` is the standard output.
        path: FilePath,
        /// Syslog servers: `"udp://HOST:PORT"`, `"tcp://HOST:PORT"`, or `"unix:/dev/log"`. The port is 514 by default.
        syslog: OneOrMore<ReceiverAddress> = OneOrMore::default(),
        /// Whether systemd's journal gets the lines, with fields as `APUS_SITE` and `APUS_STATUS`; or the path of its socket, by default
        /// `/run/systemd/journal/socket`.
        journald: Journald,
        /// The facility of messages to `syslog` and `journald`.
        facility: Facility = Facility::Local7,
        /// The name of the program in messages to `syslog` and `journald`.
        app_name: AppName = AppName("apus".to_owned()),
        /// The form of messages to `syslog`. By default `rfc5424` over UDP and TCP, and `rfc3164` on Unix sockets, where few readers know
        /// the newer form.
        syslog_format: SyslogForm,
        /// `combined`, `json`, or a line with variables: `"$remote_addr \"$request\" $status"`.
        format: Text = Text("combined".to_owned()),
        /// The requests that are logged, as a condition on request and response: `when = "status >= 400 or time_taken > 1s"`. Requests that end
        /// before there is a response are logged in any case, if the condition is about the response.
        when: When,
        /// The share of requests that are logged, at random: `0.1` for one of ten. Responses with status 500 and above, and those whose
        /// origin failed halfway, are logged in any case.
        sample: Share = Share(1.0),
        /// Requests that take this long or longer are logged in any case, beside `sample`.
        sample_slow: Time<86_400>,
        /// Parameters of queries whose values lines have as `hidden`, beside those that are hidden by default, such as `token` and `password`;
        /// `false` hides none.
        hide: Hide,
    }
}

/// The parameters of queries that are hidden beside those that always are.
#[derive(Clone, Debug)]
pub(crate) enum Hide {
    /// None at all.
    Off,
    Names(OneOrMore<ParameterName>),
}

impl KeyType for Hide {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        match node.value {
            DeValue::Boolean(false) => Some(Self::Off),
            DeValue::String(_) | DeValue::Array(_) => {
                OneOrMore::read(node, reader).map(Self::Names)
            }
            _ => {
                reader.wrong_type(node, "false, or names of parameters");
                None
            }
        }
    }

    fn type_description() -> TypeDescription {
        let names = OneOrMore::<ParameterName>::type_description();
        TypeDescription::new(
            "`false`, or names of parameters",
            json!({"anyOf": [{"const": false}, names.schema]}),
        )
    }
}

impl Facility {
    /// Its number (RFC 5424 section 6.2.1).
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Kern => 0,
            Self::User => 1,
            Self::Mail => 2,
            Self::Daemon => 3,
            Self::Auth => 4,
            Self::Syslog => 5,
            Self::Lpr => 6,
            Self::News => 7,
            Self::Uucp => 8,
            Self::Cron => 9,
            Self::Authpriv => 10,
            Self::Ftp => 11,
            Self::Local0 => 16,
            Self::Local1 => 17,
            Self::Local2 => 18,
            Self::Local3 => 19,
            Self::Local4 => 20,
            Self::Local5 => 21,
            Self::Local6 => 22,
            Self::Local7 => 23,
        }
    }
}

/// Whether the journal gets the lines.
#[derive(Clone, Debug)]
pub(crate) enum Journald {
    Off,
    On,
    Socket(FilePath),
}

impl KeyType for Journald {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        match node.value {
            DeValue::Boolean(false) => Some(Self::Off),
            DeValue::Boolean(true) => Some(Self::On),
            DeValue::String(_) => FilePath::read(node, reader).map(Self::Socket),
            _ => {
                reader.wrong_type(node, "true, false, or the path of a socket");
                None
            }
        }
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new(
            "true, false, or the path of a socket",
            json!({"anyOf": [{"type": "boolean"}, {"type": "string", "minLength": 1}]}),
        )
    }
}

/// An access log, or none.
#[derive(Clone, Debug)]
pub(crate) enum AccessLogChoice {
    Off,
    Path(FilePath),
    Table(Box<AccessLog>),
}

impl KeyType for AccessLogChoice {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        match node.value {
            DeValue::Boolean(false) => Some(Self::Off),
            DeValue::String(_) => FilePath::read(node, reader).map(Self::Path),
            DeValue::Table(_) => {
                AccessLog::read(node, reader).map(|table| Self::Table(Box::new(table)))
            }
            _ => {
                reader.wrong_type(node, "false, a path, or a table");
                None
            }
        }
    }

    fn type_description() -> TypeDescription {
        let table = AccessLog::type_description();
        TypeDescription {
            expected: "`false`, a path, or a table".to_owned(),
            schema: json!({"anyOf": [
                {"const": false},
                {"type": "string", "minLength": 1},
                table.schema,
            ]}),
            ..table
        }
    }
}
