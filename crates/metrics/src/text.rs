//! The text form: OpenMetrics 1.0, as Prometheus reads it.

use std::fmt;

use holdfast_api::metrics::v1::{Family, Kind, sample::Value};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text::encode},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

/// What the text is.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Writes metrics down.
///
/// # Errors
/// None that a `String` has.
pub(crate) fn text(families: Vec<Family>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collected(families)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Collected(Vec<Family>);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.iter().try_for_each(|family| write(family, &mut encoder))
    }
}

fn write(family: &Family, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let is_counter = family.kind() == Kind::Counter;
    let kind = match family.kind() {
        Kind::Gauge => MetricType::Gauge,
        Kind::Counter => MetricType::Counter,
        Kind::Histogram => MetricType::Histogram,
    };
    let mut metric = encoder.encode_descriptor(&family.name, &family.help, None, kind)?;
    // The encoder writes empty braces otherwise.
    if let [only] = family.samples.as_slice()
        && only.labels.is_empty()
    {
        return number(only.value.as_ref(), is_counter, metric);
    }
    family.samples.iter().try_for_each(|sample| {
        let labels: Vec<_> = sample.labels.iter().map(|label| (&*label.name, &*label.value)).collect();
        number(sample.value.as_ref(), is_counter, metric.encode_family(&labels)?)
    })
}

fn number(value: Option<&Value>, is_counter: bool, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
    match (value, is_counter) {
        (Some(&Value::Integer(value)), true) => ConstCounter::new(value).encode(encoder),
        (Some(&Value::Integer(value)), false) => ConstGauge::new(value).encode(encoder),
        (Some(&Value::Real(value)), true) => ConstCounter::new(value).encode(encoder),
        (Some(&Value::Real(value)), false) => ConstGauge::new(value).encode(encoder),
        (Some(Value::Histogram(values)), _) => {
            let buckets: Vec<_> =
                values.buckets.iter().map(|bucket| (bucket.at_most, bucket.count)).collect();
            encoder.encode_histogram::<NoLabelSet>(values.sum, values.count, &buckets, None)
        }
        (None, _) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_api::metrics::v1::{Bucket, Histogram, Label, Sample};

    use super::*;

    fn sample(labels: &[(&str, &str)], value: Value) -> Sample {
        let label = |&(name, value): &(&str, &str)| Label { name: name.into(), value: value.into() };
        Sample { labels: labels.iter().map(label).collect(), value: Some(value) }
    }

    #[test]
    fn metrics_are_written_as_the_standard_says() {
        let samples = vec![
            sample(&[("peer", "a \"b\"\\"), ("family", "ipv4")], Value::Integer(7)),
            sample(&[("peer", "b"), ("family", "ipv4")], Value::Real(0.5)),
        ];
        let family = |name: &str, kind: Kind, samples| Family {
            name: name.into(),
            help: "What it is".into(),
            kind: kind.into(),
            samples,
        };
        let buckets =
            [(0.5, 2), (2.0, 1), (f64::INFINITY, 1)].map(|(at_most, count)| Bucket { at_most, count });
        let took = Histogram { sum: 9.5, count: 4, buckets: buckets.to_vec() };
        let families = vec![
            family("up", Kind::Gauge, samples.clone()),
            family("seen", Kind::Counter, samples),
            family("alone", Kind::Gauge, vec![sample(&[], Value::Integer(1))]),
            family("none", Kind::Counter, Vec::new()),
            family("took", Kind::Histogram, vec![sample(&[("process", "bgp")], Value::Histogram(took))]),
        ];
        let expected = "\
# HELP up What it is
# TYPE up gauge
up{peer=\"a \\\"b\\\"\\\\\",family=\"ipv4\"} 7
up{peer=\"b\",family=\"ipv4\"} 0.5
# HELP seen What it is
# TYPE seen counter
seen_total{peer=\"a \\\"b\\\"\\\\\",family=\"ipv4\"} 7
seen_total{peer=\"b\",family=\"ipv4\"} 0.5
# HELP alone What it is
# TYPE alone gauge
alone 1
# HELP none What it is
# TYPE none counter
# HELP took What it is
# TYPE took histogram
took_sum{process=\"bgp\"} 9.5
took_count{process=\"bgp\"} 4
took_bucket{le=\"0.5\",process=\"bgp\"} 2
took_bucket{le=\"2.0\",process=\"bgp\"} 3
took_bucket{le=\"+Inf\",process=\"bgp\"} 4
# EOF
";
        assert_eq!(text(families).expect("written"), expected);
    }
}
