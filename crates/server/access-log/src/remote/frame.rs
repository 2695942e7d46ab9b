//! The messages of receivers: syslog (RFC 5424, RFC 3164), its framing over TCP (RFC 6587), and journald's own protocol.

use std::io::Write;
use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use crate::batch::LogMessage;
use crate::destination::SyslogFormat;

/// The most bytes of a datagram over UDP: what receivers should be able to take (RFC 5424 section 6.1).
pub(crate) const UDP_BYTES: usize = 2048;

/// The most bytes of a datagram to a Unix socket: the default of rsyslog.
pub(crate) const UNIX_BYTES: usize = 8192;

/// The most bytes of a message over TCP.
pub(crate) const TCP_BYTES: usize = 65_536;

/// The most bytes of a line in the journal: what journald keeps of a line by default.
const JOURNAL_LINE_BYTES: usize = 48 * 1024;

/// The most bytes of a field of the journal. A whole entry fits into one datagram then.
const JOURNAL_FIELD_BYTES: usize = 4096;

/// What stands at the end of a message that was too long.
const CUT_MARK: &[u8] = b"[cut]";

/// What all messages of this process say about it.
pub(crate) struct LogSender {
    host: Box<str>,
    process: u32,
}

/// The form of the messages to one syslog server.
#[derive(Clone, Copy)]
pub(crate) struct SyslogFrame {
    pub(crate) format: SyslogFormat,
    /// Whether the message has the host, which a receiver on the same machine knows.
    pub(crate) has_host: bool,
    pub(crate) max_bytes: usize,
}

impl LogSender {
    pub(crate) fn of_process() -> Self {
        let machine = rustix::system::uname();
        let host = machine.nodename().to_string_lossy();
        let is_valid = !host.is_empty()
            && host.len() <= 255
            && host.bytes().all(|byte| byte.is_ascii_graphic());
        Self {
            // RFC 5424 section 6.2.4: the NILVALUE if the host is not known.
            host: if is_valid { &*host } else { "-" }.into(),
            process: std::process::id(),
        }
    }

    /// Appends a syslog message.
    pub(crate) fn syslog(&self, message: &LogMessage<'_>, frame: SyslogFrame, out: &mut Vec<u8>) {
        let start = out.len();
        let label = message.label;
        let priority = u32::from(label.facility) * 8 + message.severity as u32;
        let (host, process, app) = (&self.host, self.process, &label.app_name);
        let time = utc(message.time);
        let _ = match frame.format {
            SyslogFormat::Rfc5424 => {
                let _ = write!(out, "<{priority}>1 ");
                let _ = time.format_into(&mut *out, RFC_5424);
                write!(out, " {host} {app} {process} access - ")
            }
            SyslogFormat::Rfc3164 => {
                let _ = write!(out, "<{priority}>");
                let _ = time.format_into(&mut *out, RFC_3164);
                if frame.has_host {
                    let _ = write!(out, " {host}");
                }
                write!(out, " {app}[{process}]: ")
            }
        };
        let used = out.len().saturating_sub(start);
        append_cut(message.text, frame.max_bytes.saturating_sub(used), out);
    }

    /// Appends an entry of the journal.
    pub(crate) fn journal(&self, message: &LogMessage<'_>, out: &mut Vec<u8>) {
        let label = message.label;
        out.extend_from_slice(b"MESSAGE=");
        append_cut(message.text, JOURNAL_LINE_BYTES, out);
        let _ = write!(
            out,
            "\nPRIORITY={}\nSYSLOG_FACILITY={}\nSYSLOG_IDENTIFIER={}\n",
            message.severity as u8, label.facility, label.app_name
        );
        for field in message.fields.split(|byte| *byte == b'\n') {
            // The value `-` means that there is none.
            if field.is_empty() || field.ends_with(b"=-") || field.ends_with(b"=") {
                continue;
            }
            append_cut(field, JOURNAL_FIELD_BYTES, out);
            out.push(b'\n');
        }
    }
}

/// Appends the length of a message and the message (RFC 6587 section 3.4.1).
pub(crate) fn count_octets(message: &[u8], out: &mut Vec<u8>) {
    let _ = write!(out, "{} ", message.len());
    out.extend_from_slice(message);
}

/// Appends a text, which is cut between two characters and marked if it is too long.
fn append_cut(text: &[u8], max_bytes: usize, out: &mut Vec<u8>) {
    if text.len() <= max_bytes {
        return out.extend_from_slice(text);
    }
    let mut end = max_bytes.saturating_sub(CUT_MARK.len());
    let is_inside = |end: usize| text.get(end).is_some_and(|byte| byte & 0xc0 == 0x80);
    while end > 0 && is_inside(end) {
        end = end.saturating_sub(1);
    }
    out.extend_from_slice(text.get(..end).unwrap_or_default());
    out.extend_from_slice(CUT_MARK);
}

const RFC_5424: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
const RFC_3164: &[BorrowedFormatItem<'_>] =
    format_description!("[month repr:short] [day padding:space] [hour]:[minute]:[second]");

fn utc(time: Duration) -> OffsetDateTime {
    let nanoseconds = i128::try_from(time.as_nanos()).unwrap_or(0);
    OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::MessageSeverity;
    use crate::destination::SyslogLabel;

    const SENDER: fn() -> LogSender = || LogSender {
        host: "web1".into(),
        process: 7,
    };

    fn message<'a>(label: &'a SyslogLabel, text: &'a str) -> LogMessage<'a> {
        LogMessage {
            label,
            text: text.as_bytes(),
            fields: b"APUS_SITE=blog\nAPUS_USER=-\nAPUS_HOST=\nAPUS_STATUS=200\n",
            time: Duration::from_millis(784_111_777_012),
            severity: MessageSeverity::Informational,
        }
    }

    fn syslog(text: &str, frame: SyslogFrame) -> String {
        let label = SyslogLabel::default();
        let mut out = Vec::new();
        SENDER().syslog(&message(&label, text), frame, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_syslog_message_has_the_form_of_its_rfc() {
        let frame = SyslogFrame {
            format: SyslogFormat::Rfc5424,
            has_host: true,
            max_bytes: UDP_BYTES,
        };
        // RFC 5424 section 6: PRI VERSION SP TIMESTAMP SP HOSTNAME SP APP-NAME SP PROCID SP MSGID SP SD SP MSG.
        assert_eq!(
            syslog("GET / 200", frame),
            "<190>1 1994-11-06T08:49:37.012Z web1 apus 7 access - GET / 200"
        );
        let frame = SyslogFrame {
            format: SyslogFormat::Rfc3164,
            ..frame
        };
        assert_eq!(
            syslog("GET / 200", frame),
            "<190>Nov  6 08:49:37 web1 apus[7]: GET / 200"
        );
        let frame = SyslogFrame {
            has_host: false,
            ..frame
        };
        assert_eq!(syslog("x", frame), "<190>Nov  6 08:49:37 apus[7]: x");
    }

    #[test]
    fn a_long_message_is_cut_between_two_characters_and_marked() {
        let frame = SyslogFrame {
            format: SyslogFormat::Rfc5424,
            has_host: true,
            max_bytes: 480,
        };
        for start in ["", "a", "ab"] {
            let text = format!("{start}{}", "\u{4e2d}".repeat(400));
            let cut = syslog(&text, frame);
            assert!(cut.ends_with("\u{4e2d}[cut]"), "{cut}");
            assert!((478..=480).contains(&cut.len()), "{}", cut.len());
        }
        let fits = "a".repeat(480 - syslog("", frame).len());
        assert!(syslog(&fits, frame).ends_with('a'));
        assert_eq!(syslog(&fits, frame).len(), 480);
    }

    #[test]
    fn octets_are_counted() {
        let mut out = Vec::new();
        count_octets(b"<1>a\nb", &mut out);
        assert_eq!(out, b"6 <1>a\nb");
    }

    #[test]
    fn an_entry_of_the_journal_has_the_fields_that_have_a_value() {
        let label = SyslogLabel::default();
        let mut out = Vec::new();
        SENDER().journal(&message(&label, "GET / 200"), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "MESSAGE=GET / 200\nPRIORITY=6\nSYSLOG_FACILITY=23\nSYSLOG_IDENTIFIER=apus\n\
             APUS_SITE=blog\nAPUS_STATUS=200\n"
        );
    }

    #[test]
    fn an_entry_of_the_journal_is_bounded() {
        let label = SyslogLabel::default();
        let text = "x".repeat(200_000);
        let field = format!("APUS_PATH={}\n", "y".repeat(200_000));
        let message = LogMessage {
            fields: field.as_bytes(),
            ..message(&label, &text)
        };
        let mut out = Vec::new();
        SENDER().journal(&message, &mut out);
        assert!(out.len() < 64 * 1024, "{}", out.len());
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 5);
    }
}
