//! Writes samples in the formats that Prometheus reads.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, MetricEncoder,
    NativeHistogram, NativeHistogramBuckets, NoLabelSet, prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::definition::{MetricKind, MetricUnit};
use crate::histogram::{HistogramReading, SCHEMA};
use crate::samples::{LabelValue, MetricFamily, MetricSamples, MetricValue};

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricFormat {
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
    /// The text format of OpenMetrics 1.0.
    OpenMetrics,
}

impl MetricFormat {
    /// The media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format for a reader with this `Accept` field: OpenMetrics if the field names it, and otherwise what every reader knows.
    pub fn accepted(accept: Option<&str>) -> Self {
        let names = |range: &str| {
            let media_type = range.split(';').next().unwrap_or_default().trim();
            media_type.eq_ignore_ascii_case("application/openmetrics-text")
        };
        match accept {
            Some(accept) if accept.split(',').any(names) => Self::OpenMetrics,
            _ => Self::Prometheus,
        }
    }

    /// Writes samples.
    pub fn write(self, samples: MetricSamples) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Collected(samples)));
        let mut written = String::new();
        // Writing to a text cannot fail, and all values are of the kinds of their metrics.
        let _ = match self {
            Self::Prometheus => prometheus_text::encode(&mut written, &registry),
            Self::OpenMetrics => text::encode(&mut written, &registry),
        };
        written
    }
}

/// Samples that are written.
#[derive(Debug)]
struct Collected(MetricSamples);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0
            .families()
            .try_for_each(|family| encode(family, &mut encoder))
    }
}

fn encode(family: &MetricFamily, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let definition = family.definition;
    let unit = definition.measured_in().map(|unit| match unit {
        MetricUnit::Seconds => Unit::Seconds,
        MetricUnit::Bytes => Unit::Bytes,
        MetricUnit::Ratio => Unit::Other("ratio".to_owned()),
    });
    let kind = match definition.kind() {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
        MetricKind::Histogram => MetricType::Histogram,
    };
    // OpenMetrics ends a help with a full stop by itself.
    let help = definition.help().trim_end_matches('.');
    let mut metric = encoder.encode_descriptor(definition.name(), help, unit.as_ref(), kind)?;
    for sample in &family.samples {
        let labels = SampleLabels(definition.label_names(), &sample.labels);
        let mut encoder = metric.encode_family(&labels)?;
        match (&sample.value, definition.kind()) {
            (MetricValue::Whole(value), MetricKind::Counter) => {
                encoder.encode_counter::<NoLabelSet, _, u64>(value, None)?;
            }
            (MetricValue::Number(value), MetricKind::Counter) => {
                encoder.encode_counter::<NoLabelSet, _, f64>(value, None)?;
            }
            (MetricValue::Whole(value), _) => encoder.encode_gauge(value)?,
            (MetricValue::Number(value), _) => encoder.encode_gauge(value)?,
            (MetricValue::Histogram(reading), _) => encode_histogram(reading, encoder)?,
        }
    }
    Ok(())
}

fn encode_histogram(reading: &HistogramReading, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    let (spans, deltas) = reading.native();
    let native = NativeHistogram {
        schema: SCHEMA,
        zero_threshold: 0.0,
        zero_count: 0,
        negative: NativeHistogramBuckets {
            spans: &[],
            deltas: &[],
        },
        positive: NativeHistogramBuckets {
            spans: &spans,
            deltas: &deltas,
        },
        created: None,
    };
    encoder.encode_histogram_with_native::<NoLabelSet>(
        reading.sum().as_secs_f64(),
        reading.count(),
        &reading.classic(),
        None,
        native,
    )
}

/// The labels of a sample.
struct SampleLabels<'a>(&'static [&'static str], &'a [LabelValue]);

impl EncodeLabelSet for SampleLabels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let Self(names, values) = self;
        for (name, value) in names.iter().zip(*values) {
            (*name, value.as_str()).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{DurationHistogram, MetricDefinition};

    static UP: MetricDefinition = MetricDefinition::gauge("up", "Whether it is up.");
    static SEEN: MetricDefinition =
        MetricDefinition::counter("seen", "Requests.").labels(&["a", "b"]);
    static SENT: MetricDefinition =
        MetricDefinition::counter("sent", "Sent bytes.").unit(MetricUnit::Bytes);
    static TOOK: MetricDefinition = MetricDefinition::histogram("took", "The time.").labels(&["a"]);

    fn samples() -> MetricSamples {
        let mut samples = MetricSamples::new();
        samples.add(&UP, true);
        samples.of(&SEEN).add(["\\\"\n".into(), "é".into()], 2.5);
        samples.add(&SENT, 7_u64);
        let histogram = DurationHistogram::default();
        for seconds in [0.000_1, 0.25, 0.26, 100.0] {
            histogram.observe(Duration::from_secs_f64(seconds));
        }
        samples.of(&TOOK).add(["b".into()], histogram.read());
        samples
    }

    #[test]
    fn formats_have_types_units_escaped_labels_and_buckets() {
        let text = MetricFormat::Prometheus.write(samples());
        for line in [
            "# TYPE up gauge",
            "up 1",
            "# HELP seen_total Requests",
            "# TYPE seen_total counter",
            "seen_total{a=\"\\\\\\\"\\n\",b=\"é\"} 2.5",
            "sent_bytes_total 7",
            "# TYPE took_seconds histogram",
            "took_seconds_bucket{a=\"b\",le=\"0.25\"} 2",
            "took_seconds_bucket{a=\"b\",le=\"0.5\"} 3",
            "took_seconds_bucket{a=\"b\",le=\"64\"} 3",
            "took_seconds_bucket{a=\"b\",le=\"+Inf\"} 4",
            "took_seconds_sum{a=\"b\"} 100.5101",
            "took_seconds_count{a=\"b\"} 4",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "no {line} in {text}"
            );
        }
        let text = MetricFormat::OpenMetrics.write(samples());
        for line in ["# TYPE seen counter", "# UNIT sent_bytes bytes", "# EOF"] {
            assert!(
                text.lines().any(|found| found == line),
                "no {line} in {text}"
            );
        }
    }

    #[test]
    fn openmetrics_is_for_readers_that_name_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for (accept, format) in [
            (None, MetricFormat::Prometheus),
            (Some("*/*"), MetricFormat::Prometheus),
            (Some("text/plain"), MetricFormat::Prometheus),
            (Some(prometheus), MetricFormat::OpenMetrics),
            (
                Some("Application/OpenMetrics-Text"),
                MetricFormat::OpenMetrics,
            ),
        ] {
            assert_eq!(MetricFormat::accepted(accept), format, "{accept:?}");
        }
    }
}
