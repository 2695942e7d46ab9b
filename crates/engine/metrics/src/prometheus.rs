//! Writes metrics in the Prometheus text format, version 0.0.4.

use std::fmt::{self, Display, Write};

/// The media type of the format.
pub const PROMETHEUS_MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    /// A value that only grows.
    Counter,
    /// A value that grows and shrinks.
    Gauge,
    /// Counts of observations in buckets.
    Histogram,
}

impl Display for MetricType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        })
    }
}

/// The labels of a sample, in order and with escaped values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricLabels(String);

impl MetricLabels {
    /// No labels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a label after the others.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(name);
        self.0.push_str("=\"");
        for character in value.chars() {
            match character {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
        self.0.push('"');
        self
    }
}

/// Metrics in the text format.
///
/// Each metric is a [`metric`](Self::metric), then its samples.
#[derive(Clone, Debug, Default)]
pub struct PrometheusText(String);

impl PrometheusText {
    /// No metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a metric.
    pub fn metric(&mut self, name: &str, metric_type: MetricType, help: Option<&str>) {
        if let Some(help) = help {
            self.line(format_args!("# HELP {name} {help}"));
        }
        self.line(format_args!("# TYPE {name} {metric_type}"));
    }

    /// Appends a sample of a counter or a gauge.
    pub fn sample(&mut self, name: &str, labels: &MetricLabels, value: impl Display) {
        match labels.0.as_str() {
            "" => self.line(format_args!("{name} {value}")),
            labels => self.line(format_args!("{name}{{{labels}}} {value}")),
        }
    }

    /// Appends the samples of a histogram. `buckets` are the upper bounds and the counts of observations
    /// between the bound before and this one.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &MetricLabels,
        buckets: impl IntoIterator<Item = (f64, u64)>,
        sum: f64,
        count: u64,
    ) {
        let bucket = format!("{name}_bucket");
        let mut cumulative = 0_u64;
        for (bound, observations) in buckets {
            cumulative = cumulative.saturating_add(observations);
            let labels = labels.clone().with("le", &bound.to_string());
            self.sample(&bucket, &labels, cumulative);
        }
        self.sample(&bucket, &labels.clone().with("le", "+Inf"), count);
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, count);
    }

    /// The text.
    pub fn into_string(self) -> String {
        self.0
    }

    /// Appends a line, which cannot fail.
    fn line(&mut self, line: fmt::Arguments<'_>) {
        let _ = writeln!(self.0, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_types_labels_and_buckets() {
        let mut text = PrometheusText::new();
        text.metric("up", MetricType::Gauge, None);
        text.sample("up", &MetricLabels::new(), 1);
        text.metric("seen_total", MetricType::Counter, Some("Requests."));
        let labels = MetricLabels::new().with("a", "\\\"\n").with("b", "é");
        text.sample("seen_total", &labels, 2.5);
        text.metric("seconds", MetricType::Histogram, None);
        let labels = MetricLabels::new().with("a", "b");
        text.histogram("seconds", &labels, [(0.5, 1), (1.0, 2)], 4.25, 4);
        assert_eq!(
            text.into_string(),
            "# TYPE up gauge\n\
             up 1\n\
             # HELP seen_total Requests.\n\
             # TYPE seen_total counter\n\
             seen_total{a=\"\\\\\\\"\\n\",b=\"é\"} 2.5\n\
             # TYPE seconds histogram\n\
             seconds_bucket{a=\"b\",le=\"0.5\"} 1\n\
             seconds_bucket{a=\"b\",le=\"1\"} 3\n\
             seconds_bucket{a=\"b\",le=\"+Inf\"} 4\n\
             seconds_sum{a=\"b\"} 4.25\n\
             seconds_count{a=\"b\"} 4\n"
        );
    }
}
