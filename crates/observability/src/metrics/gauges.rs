//! Gauges whose values are all replaced at the same time, so that values for things that no longer exist
//! disappear.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::names::Metric;

/// A metric's values, by their label values. The label values are in the order of the metric's labels.
type Samples = BTreeMap<Vec<String>, f64>;

/// The values of gauges at one point in time.
#[derive(Clone, Debug, Default)]
pub struct GaugeValues(BTreeMap<&'static str, (&'static Metric, Samples)>);

impl GaugeValues {
    /// Sets a value. The number of label values must match the metric's labels.
    pub fn put(&mut self, metric: &'static Metric, labels: &[&str], value: f64) {
        debug_assert_eq!(metric.labels.len(), labels.len(), "{}", metric.name);
        let samples = &mut self.0.entry(metric.name).or_insert((metric, BTreeMap::new())).1;
        samples.insert(labels.iter().map(|&label| label.to_owned()).collect(), value);
    }

    /// Adds one to a value, which starts at zero.
    pub fn count(&mut self, metric: &'static Metric, labels: &[&str]) {
        let labels: Vec<String> = labels.iter().map(|&label| label.to_owned()).collect();
        let samples = &mut self.0.entry(metric.name).or_insert((metric, BTreeMap::new())).1;
        *samples.entry(labels).or_default() += 1.0;
    }

    /// Returns the sum of all values of a metric, or 0 if the metric has no values.
    pub(super) fn sum(&self, metric: &'static Metric) -> f64 {
        self.0.get(metric.name).map_or(0.0, |(_, samples)| total(samples.values()))
    }

    /// The sum of those values of a metric that have this label value.
    pub(super) fn sum_with(&self, metric: &'static Metric, label: &str) -> f64 {
        let samples = self.0.get(metric.name).map(|(_, samples)| samples);
        let of_it = samples.into_iter().flatten().filter(|(labels, _)| labels.iter().any(|one| one == label));
        total(of_it.map(|(_, value)| value))
    }

    /// The number of values that a metric has.
    pub(super) fn count_of(&self, metric: &'static Metric) -> f64 {
        number(
            self.0
                .get(metric.name)
                .map_or(0, |(_, samples)| i64::try_from(samples.len()).unwrap_or(i64::MAX)),
        )
    }

    /// Returns a metric's values, each with the value of the metric's first label.
    pub(super) fn by_first(&self, metric: &'static Metric) -> impl Iterator<Item = (&str, f64)> {
        let samples = self.0.get(metric.name).map(|(_, samples)| samples);
        samples.into_iter().flatten().filter_map(|(labels, value)| Some((labels.first()?.as_str(), *value)))
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (metric, samples) in self.0.values() {
            let (unit, help) = (metric.unit(), format!("{}.", metric.help));
            let mut family =
                encoder.encode_descriptor(metric.name, &help, unit.as_ref(), MetricType::Gauge)?;
            for (values, value) in samples {
                let labels: Vec<(&str, &str)> =
                    metric.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
                if labels.is_empty() {
                    family.encode_gauge(value)?;
                } else {
                    family.encode_family(&labels)?.encode_gauge(value)?;
                }
            }
        }
        Ok(())
    }
}

/// The sum of the values. Unlike `Iterator::sum`, it returns 0 instead of -0 if there are none.
fn total<'v>(values: impl Iterator<Item = &'v f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

/// A count or an amount as a metric value.
#[expect(
    clippy::cast_precision_loss,
    reason = "metrics are floating-point numbers, which are exact up to 2^53"
)]
pub fn number(value: i64) -> f64 {
    value as f64
}
