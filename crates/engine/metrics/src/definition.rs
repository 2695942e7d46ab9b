//! What a metric is: its name, kind, unit, help and labels, in one place for each.

/// A metric, of which there is one definition.
///
/// ```
/// use apus_metrics::MetricDefinition;
///
/// static ORDERS: MetricDefinition = MetricDefinition::counter("shop_orders", "Orders that were paid.").labels(&["country"]);
/// assert_eq!(ORDERS.full_name(), "shop_orders_total");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricDefinition {
    name: &'static str,
    help: &'static str,
    kind: MetricKind,
    unit: Option<MetricUnit>,
    labels: &'static [&'static str],
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only grows.
    Counter,
    /// A value that grows and shrinks.
    Gauge,
    /// How many observations were in which range.
    Histogram,
}

/// The unit of a metric, one of the base units that Prometheus recommends. The name ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// A ratio from 0 to 1.
    Ratio,
}

impl MetricDefinition {
    /// A counter. The name has no suffix `_total`, which each format adds.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self::new(name, help, MetricKind::Counter)
    }

    /// A gauge.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::new(name, help, MetricKind::Gauge)
    }

    /// A histogram of times.
    pub const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self::new(name, help, MetricKind::Histogram).unit(MetricUnit::Seconds)
    }

    const fn new(name: &'static str, help: &'static str, kind: MetricKind) -> Self {
        Self {
            name,
            help,
            kind,
            unit: None,
            labels: &[],
        }
    }

    /// This metric in a unit. The name has no suffix of the unit, which each format adds.
    #[must_use]
    pub const fn unit(mut self, unit: MetricUnit) -> Self {
        self.unit = Some(unit);
        self
    }

    /// This metric with these labels, whose values come in the same order.
    #[must_use]
    pub const fn labels(mut self, labels: &'static [&'static str]) -> Self {
        self.labels = labels;
        self
    }

    /// The name without the suffixes of its unit and kind.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The name as samples have it; those of a histogram end with `_bucket`, `_sum` and `_count` besides.
    pub fn full_name(&self) -> String {
        let mut name = self.name.to_owned();
        if let Some(unit) = self.unit {
            name.push('_');
            name.push_str(unit.name());
        }
        if self.kind == MetricKind::Counter {
            name.push_str("_total");
        }
        name
    }

    /// What it is, in a sentence without a full stop for the formats.
    pub const fn help(&self) -> &'static str {
        self.help
    }

    /// Its kind.
    pub const fn kind(&self) -> MetricKind {
        self.kind
    }

    /// Its unit.
    pub const fn measured_in(&self) -> Option<MetricUnit> {
        self.unit
    }

    /// The names of its labels.
    pub const fn label_names(&self) -> &'static [&'static str] {
        self.labels
    }
}

impl MetricKind {
    /// Its name in the text formats.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl MetricUnit {
    /// Its name as it ends the names of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
            Self::Ratio => "ratio",
        }
    }
}
