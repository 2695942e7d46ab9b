//! Metrics as messages of the OpenTelemetry protocol.

use std::time::SystemTime;

use apus_metrics::{
    HistogramReading, MetricDefinition, MetricFamily, MetricKind, MetricSample, MetricSamples,
    MetricUnit, MetricValue,
};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};

use crate::message::{attribute, nanoseconds, resource, scope};

/// Metrics of one moment.
#[derive(Debug)]
pub struct MetricsExport {
    /// Their values.
    pub samples: MetricSamples,
    /// When counters began.
    pub started: SystemTime,
    /// The moment.
    pub time: SystemTime,
}

impl MetricsExport {
    /// The message.
    pub(crate) fn message(&self, from: &[(String, String)]) -> ExportMetricsServiceRequest {
        let families = self.samples.families();
        let families = families.filter(|family| !family.samples.is_empty());
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(resource(from)),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope()),
                    metrics: families.map(|family| self.metric(family)).collect(),
                    schema_url: String::new(),
                }],
                schema_url: String::new(),
            }],
        }
    }

    fn metric(&self, family: &MetricFamily) -> Metric {
        let definition = family.definition;
        let cumulative = AggregationTemporality::Cumulative.into();
        let data = match definition.kind() {
            MetricKind::Counter => Data::Sum(Sum {
                data_points: self.numbers(family),
                aggregation_temporality: cumulative,
                is_monotonic: true,
            }),
            MetricKind::Gauge => Data::Gauge(Gauge {
                data_points: self.numbers(family),
            }),
            MetricKind::Histogram => Data::ExponentialHistogram(ExponentialHistogram {
                data_points: self.histograms(family),
                aggregation_temporality: cumulative,
            }),
        };
        // Collectors add the unit, and the suffix of counters, to what Prometheus reads.
        Metric {
            name: definition.name().to_owned(),
            description: definition.help().to_owned(),
            unit: unit(definition).to_owned(),
            data: Some(data),
            ..Metric::default()
        }
    }

    fn numbers(&self, family: &MetricFamily) -> Vec<NumberDataPoint> {
        let samples = family.samples.iter();
        let points = samples.filter_map(|sample| {
            let value = match sample.value {
                MetricValue::Whole(value) => {
                    Number::AsInt(i64::try_from(value).unwrap_or(i64::MAX))
                }
                MetricValue::Number(value) => Number::AsDouble(value),
                MetricValue::Histogram(_) => return None,
            };
            Some(NumberDataPoint {
                attributes: attributes(family.definition, sample),
                start_time_unix_nano: nanoseconds(self.started),
                time_unix_nano: nanoseconds(self.time),
                value: Some(value),
                ..NumberDataPoint::default()
            })
        });
        points.collect()
    }

    fn histograms(&self, family: &MetricFamily) -> Vec<ExponentialHistogramDataPoint> {
        let samples = family.samples.iter();
        let points = samples.filter_map(|sample| {
            let MetricValue::Histogram(reading) = &sample.value else {
                return None;
            };
            let (scale, offset, counts) = reading.exponential();
            Some(ExponentialHistogramDataPoint {
                attributes: attributes(family.definition, sample),
                start_time_unix_nano: nanoseconds(self.started),
                time_unix_nano: nanoseconds(self.time),
                count: HistogramReading::count(reading),
                sum: Some(reading.sum().as_secs_f64()),
                scale,
                positive: Some(Buckets {
                    offset,
                    bucket_counts: counts,
                }),
                ..ExponentialHistogramDataPoint::default()
            })
        });
        points.collect()
    }
}

fn attributes(definition: &MetricDefinition, sample: &MetricSample) -> Vec<KeyValue> {
    let names = definition.label_names().iter();
    let labels = names.zip(&*sample.labels);
    labels
        .map(|(name, label)| attribute(name, label.as_str()))
        .collect()
}

/// The unit by the code that OpenTelemetry uses (UCUM).
fn unit(definition: &MetricDefinition) -> &'static str {
    match definition.measured_in() {
        Some(MetricUnit::Seconds) => "s",
        Some(MetricUnit::Bytes) => "By",
        Some(MetricUnit::Ratio) => "1",
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use apus_metrics::DurationHistogram;

    use super::*;

    static SEEN: MetricDefinition = MetricDefinition::counter("seen", "Requests.").labels(&["a"]);
    static TOOK: MetricDefinition = MetricDefinition::histogram("took", "The time.");
    static HELD: MetricDefinition =
        MetricDefinition::gauge("held", "Held bytes.").unit(MetricUnit::Bytes);
    static NONE: MetricDefinition = MetricDefinition::gauge("none", "Nothing.");

    #[test]
    fn messages_have_names_units_and_exponential_histograms() {
        let mut samples = MetricSamples::new();
        samples.of(&SEEN).add(["b".into()], 7_u64);
        samples.add(&HELD, 1.5);
        samples.of(&NONE);
        let histogram = DurationHistogram::default();
        for seconds in [1.0, 1.0, 1.05, 2.0] {
            histogram.observe(Duration::from_secs_f64(seconds));
        }
        samples.add(&TOOK, histogram.read());
        let export = MetricsExport {
            samples,
            started: UNIX_EPOCH + Duration::from_secs(5),
            time: UNIX_EPOCH + Duration::from_secs(9),
        };
        let message = export.message(&[("service.name".to_owned(), "apus".to_owned())]);
        let of = &message.resource_metrics[0];
        let resource = of.resource.as_ref().unwrap();
        assert_eq!(resource.attributes, [attribute("service.name", "apus")]);
        let metrics = &of.scope_metrics[0].metrics;
        let names: Vec<_> = metrics.iter().map(|one| (&*one.name, &*one.unit)).collect();
        assert_eq!(names, [("held", "By"), ("seen", ""), ("took", "s")]);
        let Some(Data::Sum(sum)) = &metrics[1].data else {
            panic!("{metrics:?}");
        };
        assert!(sum.is_monotonic);
        assert_eq!(sum.data_points[0].value, Some(Number::AsInt(7)));
        assert_eq!(sum.data_points[0].start_time_unix_nano, 5_000_000_000);
        assert_eq!(sum.data_points[0].attributes, [attribute("a", "b")]);
        let Some(Data::ExponentialHistogram(histogram)) = &metrics[2].data else {
            panic!("{metrics:?}");
        };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.scale, point.zero_count), (4, 3, 0));
        // 1 s ends bucket -1, 1.05 s is in bucket 0, and 2 s ends bucket 7.
        let buckets = point.positive.as_ref().unwrap();
        assert_eq!(buckets.offset, -1);
        assert_eq!(buckets.bucket_counts, [2, 1, 0, 0, 0, 0, 0, 0, 1]);
    }
}
