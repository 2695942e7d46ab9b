//! The last warnings and errors of the server's own log, which `apus status --errors` and the API show.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The most lines that are kept.
const MAX_LINES: usize = 200;

/// The most bytes of each text of a line, and of all of them together. Longer ones are cut, and end with `…`.
const MAX_TEXT: usize = 1024;
const MAX_LINE: usize = 4096;

/// The field that names the request of a line, and the one that names its site.
const REQUEST_ID: &str = "request_id";
const SITE: &str = "site";

/// The last lines of the levels `WARN` and `ERROR`. Clones are the same.
///
/// A thread that logs such a line waits for others that do, and for readers, who copy references. The limit of the log on lines that clients can
/// cause is the limit of that, too.
#[derive(Clone, Default)]
pub(crate) struct RecentErrors(Arc<Mutex<VecDeque<Arc<ErrorLine>>>>);

struct ErrorLine {
    time: f64,
    level: &'static str,
    target: &'static str,
    message: String,
    fields: Map<String, Value>,
}

impl RecentErrors {
    /// The lines about some sites, or about all and the server as a whole; the last one first.
    pub(crate) fn list(&self, sites: Option<&[String]>) -> Value {
        let is_visible = |line: &ErrorLine| {
            sites.is_none_or(|sites| {
                let site = line.fields.get(SITE).and_then(Value::as_str);
                site.is_some_and(|site| sites.iter().any(|own| own == site))
            })
        };
        let lines: Vec<_> = self.lines().iter().map(Arc::clone).collect();
        let shown = lines.iter().rev().filter(|line| is_visible(line));
        json!({ "errors": shown.map(|line| line.shown()).collect::<Vec<_>>() })
    }

    /// The lines about a request, the first one first.
    pub(crate) fn of_request(&self, id: &str) -> Value {
        let lines: Vec<_> = self.lines().iter().map(Arc::clone).collect();
        let is_of_request = |line: &&Arc<ErrorLine>| {
            line.fields.get(REQUEST_ID).and_then(Value::as_str) == Some(id)
        };
        lines
            .iter()
            .filter(is_of_request)
            .map(|line| line.shown())
            .collect()
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<Arc<ErrorLine>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RecentErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecentErrors").finish_non_exhaustive()
    }
}

impl<S: Subscriber> Layer<S> for RecentErrors {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let place = event.metadata();
        if *place.level() > Level::WARN {
            return;
        }
        let mut fields = LineFields::default();
        event.record(&mut fields);
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let line = Arc::new(ErrorLine {
            time: time.unwrap_or_default().as_secs_f64(),
            level: place.level().as_str(),
            target: place.target(),
            message: fields.message,
            fields: fields.others,
        });
        let mut lines = self.lines();
        if lines.len() >= MAX_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

impl ErrorLine {
    fn shown(&self) -> Value {
        let mut fields = self.fields.clone();
        let site = fields.remove(SITE);
        let request_id = fields.remove(REQUEST_ID);
        json!({
            "time": self.time,
            "level": self.level,
            "message": self.message,
            "site": site,
            "request_id": request_id,
            "target": self.target,
            "fields": fields,
        })
    }
}

/// The fields of a line, up to a bound.
#[derive(Default)]
struct LineFields {
    message: String,
    others: Map<String, Value>,
    bytes: usize,
}

impl LineFields {
    fn add_text(&mut self, field: &Field, text: &str) {
        let left = MAX_LINE.saturating_sub(self.bytes).min(MAX_TEXT);
        let text = if text.len() <= left {
            text.to_owned()
        } else {
            let end = text.floor_char_boundary(left);
            format!("{}…", text.get(..end).unwrap_or_default())
        };
        self.bytes += text.len();
        if field.name() == "message" {
            self.message = text;
        } else {
            self.others.insert(field.name().to_owned(), text.into());
        }
    }

    fn add(&mut self, field: &Field, value: Value) {
        self.others.insert(field.name().to_owned(), value);
    }
}

impl Visit for LineFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add_text(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add_text(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn logged(log: impl FnOnce()) -> RecentErrors {
        let errors = RecentErrors::default();
        let subscriber = tracing_subscriber::registry().with(errors.clone());
        tracing::subscriber::with_default(subscriber, log);
        errors
    }

    #[test]
    fn the_last_warnings_and_errors_are_kept_with_their_fields() {
        let errors = logged(|| {
            tracing::error!("the first one");
            for number in 0..MAX_LINES {
                tracing::warn!(number, site = "shop", request_id = %"a-b", cause = ?Some(1), "a line {number}");
                tracing::info!("no error");
            }
        });
        let list = errors.list(None);
        let lines = list["errors"].as_array().unwrap();
        assert_eq!(lines.len(), MAX_LINES);
        assert_eq!(lines[0]["message"], "a line 199");
        assert_eq!(
            (&lines[0]["level"], &lines[0]["site"]),
            (&"WARN".into(), &"shop".into())
        );
        assert_eq!(lines[0]["request_id"], "a-b");
        assert_eq!(
            lines[0]["fields"],
            json!({ "number": 199, "cause": "Some(1)" })
        );
        assert_eq!(
            errors.of_request("a-b").as_array().unwrap().len(),
            MAX_LINES
        );
        assert_eq!(errors.of_request("a").as_array().unwrap().len(), 0);
    }

    #[test]
    fn lines_about_other_sites_and_the_server_are_not_for_accounts_of_some_sites() {
        let errors = logged(|| {
            tracing::warn!(site = "shop", "of the shop");
            tracing::warn!(site = "blog", "of the blog");
            tracing::error!("of the server");
        });
        let list = errors.list(Some(&["shop".to_owned()]));
        assert_eq!(list["errors"].as_array().unwrap().len(), 1, "{list}");
        assert_eq!(list["errors"][0]["message"], "of the shop");
    }

    #[test]
    fn a_line_takes_a_bounded_number_of_bytes() {
        let long = "é".repeat(10_000);
        let errors = logged(|| {
            tracing::error!(a = long, b = long, c = ?long, d = long, e = long, f = long, "{long}");
        });
        let text = errors.list(None).to_string();
        assert!(text.len() < MAX_LINE + 1024, "{}", text.len());
    }
}
