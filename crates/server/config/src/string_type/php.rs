//! Types of values of PHP: servers, scripts and parameters.

use std::path::PathBuf;

use apus_http::url::split_scheme;
use apus_sites::Template;
use serde_json::json;

use super::origin::{NodeAddress, is_group_name, parse_node};
use crate::description::TypeDescription;
use crate::keys::{ConfigReader, KeyType, StringType, ValueError, ValueNode, parse_string};

/// The address of a PHP server, or a group of the site by its name.
#[derive(Clone, Debug)]
pub(crate) enum PhpServer {
    Node(NodeAddress),
    Group(String),
    /// A `php-cgi` that is started here.
    Program(PathBuf),
}

impl StringType for PhpServer {
    const EXPECTED: &'static str = "a socket as \"/run/php/php-fpm.sock\", \"host:port\", the name of a group \
         of the site, or a program as \"/usr/bin/php-cgi\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if is_group_name(text) {
            return Ok(Self::Group(text.to_owned()));
        }
        if split_scheme(text).is_some() || text.starts_with("srv:") {
            return Err("requests to PHP are sent over FastCGI, which has no scheme".into());
        }
        let name = text.rsplit('/').next().unwrap_or_default();
        if text.starts_with('/') && name.starts_with("php-cgi") && !name.ends_with(".sock") {
            return Ok(Self::Program(text.into()));
        }
        // A path, relative or not, names a socket.
        if text.contains('/') && !text.starts_with("unix:") {
            parse_node(&format!("unix:{text}"))
        } else {
            parse_node(text)
        }
        .map(Self::Node)
    }
}

/// A PHP server with a path that is relative to the file.
#[derive(Clone, Debug)]
pub(crate) struct PhpAddress(pub(crate) PhpServer);

impl KeyType for PhpAddress {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let text = node.text(reader, PhpServer::EXPECTED)?;
        Some(Self(match parse_string(&text, &node.span, reader)? {
            PhpServer::Node(address) => PhpServer::Node(address.resolved(node, reader)),
            group => group,
        }))
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new(PhpServer::EXPECTED, json!({"type": "string"}))
    }
}

/// A script, by its path below the root.
#[derive(Clone, Debug)]
pub(crate) struct ScriptPath(pub(crate) String);

impl StringType for ScriptPath {
    const EXPECTED: &'static str = "a path as \"/index.php\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if !text.ends_with(".php") {
            return Err("it does not end with `.php`".into());
        }
        let is_normal = |name: &str| !matches!(name, "" | "." | "..");
        let mut names = text.split('/').skip(1);
        let is_path = text.starts_with('/') && names.all(is_normal);
        if is_path && !text.chars().any(char::is_control) {
            Ok(Self(text.to_owned()))
        } else {
            Err("it starts with a slash, and has no `//`, `.` or `..`".into())
        }
    }
}

/// The name of a FastCGI parameter.
#[derive(Clone, Debug)]
pub(crate) struct VariableName(pub(crate) String);

impl StringType for VariableName {
    const EXPECTED: &'static str = "the name of a variable as \"APP_ENV\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if !text.is_empty() && text.bytes().all(is_valid) {
            Ok(Self(text.to_owned()))
        } else {
            Err("it has only letters, digits and `_`".into())
        }
    }
}

/// The value of a FastCGI parameter, which may hold variables.
#[derive(Clone, Debug)]
pub(crate) struct VariableValue(pub(crate) Template);

impl StringType for VariableValue {
    const EXPECTED: &'static str = "a text, which may hold variables as $host";

    fn parse(text: &str) -> Result<Self, ValueError> {
        Template::parse(text).map(Self).map_err(ValueError::of)
    }
}
