//! The values of metrics at one moment.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::definition::MetricDefinition;
use crate::histogram::HistogramReading;

/// The values of metrics at one moment, from all parts of a program.
#[derive(Clone, Debug, Default)]
pub struct MetricSamples(BTreeMap<&'static str, MetricFamily>);

/// A metric with its values.
#[derive(Clone, Debug)]
pub struct MetricFamily {
    /// What it is.
    pub definition: &'static MetricDefinition,
    /// Its values.
    pub samples: Vec<MetricSample>,
}

/// A value of a metric.
#[derive(Clone, Debug)]
pub struct MetricSample {
    /// The values of its labels, in the order of the definition.
    pub labels: Box<[LabelValue]>,
    /// The value.
    pub value: MetricValue,
}

/// What a sample says.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// Of a counter or gauge that is a whole number.
    Whole(u64),
    /// Of a counter or gauge.
    Number(f64),
    /// Of a histogram.
    Histogram(Box<HistogramReading>),
}

/// The value of a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LabelValue {
    /// A text of the program, or of this sample alone.
    Text(Cow<'static, str>),
    /// A text that others have too, such as the name of a site.
    Shared(Arc<str>),
}

impl MetricSamples {
    /// No values.
    pub fn new() -> Self {
        Self::default()
    }

    /// The samples of a metric, to add to. Without any, formats say only that the metric exists.
    pub fn of(&mut self, definition: &'static MetricDefinition) -> &mut MetricFamily {
        let family = self.0.entry(definition.name());
        family.or_insert_with(|| MetricFamily {
            definition,
            samples: Vec::new(),
        })
    }

    /// Adds a value of a metric that has no labels.
    pub fn add(&mut self, definition: &'static MetricDefinition, value: impl Into<MetricValue>) {
        self.of(definition).add([], value);
    }

    /// The metrics by name.
    pub fn families(&self) -> impl Iterator<Item = &MetricFamily> {
        self.0.values()
    }
}

impl MetricFamily {
    /// Adds a value for these labels, in the order of the definition.
    pub fn add<const N: usize>(&mut self, labels: [LabelValue; N], value: impl Into<MetricValue>) {
        debug_assert_eq!(N, self.definition.label_names().len());
        self.samples.push(MetricSample {
            labels: labels.into(),
            value: value.into(),
        });
    }
}

impl LabelValue {
    /// The text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl From<&'static str> for LabelValue {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for LabelValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<Arc<str>> for LabelValue {
    fn from(text: Arc<str>) -> Self {
        Self::Shared(text)
    }
}

impl From<&Arc<str>> for LabelValue {
    fn from(text: &Arc<str>) -> Self {
        Self::Shared(Arc::clone(text))
    }
}

impl From<u64> for MetricValue {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<usize> for MetricValue {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<bool> for MetricValue {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for MetricValue {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<HistogramReading> for MetricValue {
    fn from(value: HistogramReading) -> Self {
        Self::Histogram(Box::new(value))
    }
}
