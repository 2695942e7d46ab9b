//! Types of values of access logs: their receivers, and the parameters that they hide.

use apus_access_log::SyslogAddress;
use serde_json::json;

use crate::description::TypeDescription;
use crate::keys::{ConfigReader, KeyType, StringType, ValueError, ValueNode, parse_string};

/// The address of a syslog server.
#[derive(Clone, Debug)]
pub(crate) struct ReceiverAddress(pub(crate) SyslogAddress);

struct ReceiverText(SyslogAddress);

impl StringType for ReceiverText {
    const EXPECTED: &'static str = "\"udp://HOST:PORT\", \"tcp://HOST:PORT\" or \"unix:/dev/log\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        text.parse().map(Self).map_err(ValueError::of)
    }
}

impl KeyType for ReceiverAddress {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let text = node.text(reader, ReceiverText::EXPECTED)?;
        let ReceiverText(address) = parse_string(&text, &node.span, reader)?;
        Some(Self(match address {
            SyslogAddress::Unix(path) => {
                SyslogAddress::Unix(reader.sources.resolve(&node.span, path))
            }
            address => address,
        }))
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new(ReceiverText::EXPECTED, json!({"type": "string"}))
    }
}

/// The name of a program in messages to syslog (RFC 5424 section 6.2.5).
#[derive(Clone, Debug)]
pub(crate) struct AppName(pub(crate) String);

impl StringType for AppName {
    const EXPECTED: &'static str = "1 to 48 visible ASCII characters";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if (1..=48).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ValueError::Unexpected)
        }
    }

    fn as_written(&self) -> Option<&str> {
        Some(&self.0)
    }
}

/// The name of a parameter of queries, as it is after decoding.
#[derive(Clone, Debug)]
pub(crate) struct ParameterName(pub(crate) String);

impl StringType for ParameterName {
    const EXPECTED: &'static str = "the name of a parameter as \"token\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let is_delimiter =
            |character: char| character.is_control() || "?&=#;%[]+".contains(character);
        if text.is_empty() || text.len() > 128 || text.trim() != text || text.contains(is_delimiter)
        {
            return Err(ValueError::Unexpected);
        }
        Ok(Self(text.to_owned()))
    }

    fn as_written(&self) -> Option<&str> {
        Some(&self.0)
    }
}
