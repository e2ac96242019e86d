//! Families of metrics: how they are collected, and how they become text.

use std::fmt;

use diskside_volume::stats::{LATENCY_BOUNDS_US, LatencyStats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

pub(super) const BYTES: Option<&Unit> = Some(&Unit::Bytes);
pub(super) const SECONDS: Option<&Unit> = Some(&Unit::Seconds);

/// Collectors outlive what they tell of, so it is taken down first.
#[derive(Debug)]
pub(super) struct Told(pub(super) Vec<Family>);

#[derive(Debug)]
pub(super) struct Family {
    name: &'static str,
    help: &'static str,
    unit: Option<&'static Unit>,
    kind: MetricType,
    series: Vec<(Labels, Value)>,
}

pub(super) type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
pub(super) enum Value {
    Whole(u64),
    Number(f64),
    Latencies(LatencyStats),
}

impl Collector for Told {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, help, unit, kind, series } in &self.0 {
            let mut family = encoder.encode_descriptor(name, help, *unit, *kind)?;
            if let [(labels, value)] = &series[..]
                && labels.is_empty()
            {
                encode(value, *kind, family)?;
                continue;
            }
            for (labels, value) in series {
                encode(value, *kind, family.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

fn encode(value: &Value, kind: MetricType, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    match (value, kind) {
        (Value::Whole(value), MetricType::Counter) => ConstCounter::new(*value).encode(encoder),
        (Value::Number(value), MetricType::Counter) => ConstCounter::new(*value).encode(encoder),
        (Value::Whole(value), _) => ConstGauge::new(*value as f64).encode(encoder),
        (Value::Number(value), _) => ConstGauge::new(*value).encode(encoder),
        (Value::Latencies(LatencyStats { counts, sum_us }), _) => {
            let bounds = LATENCY_BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
            let (buckets, sum): (Vec<(f64, u64)>, f64) = (bounds.zip(*counts).collect(), *sum_us as f64 / 1e6);
            encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
        }
    }
}

/// Families as they are taken down.
#[derive(Default)]
pub(super) struct Lines(pub(super) Vec<Family>);

impl Lines {
    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str, unit: Option<&'static Unit>, value: f64) {
        self.one(name, help, unit, MetricType::Gauge, Value::Number(value));
    }

    pub(super) fn counter(&mut self, name: &'static str, help: &'static str, unit: Option<&'static Unit>, value: u64) {
        self.one(name, help, unit, MetricType::Counter, Value::Whole(value));
    }

    pub(super) fn seconds(&mut self, name: &'static str, help: &'static str, value_us: u64) {
        self.one(name, help, SECONDS, MetricType::Counter, Value::Number(value_us as f64 / 1e6));
    }

    pub(super) fn one(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Option<&'static Unit>,
        kind: MetricType,
        value: Value,
    ) {
        self.family(name, help, unit, kind, vec![(Vec::new(), value)]);
    }

    pub(super) fn histogram(&mut self, name: &'static str, help: &'static str, series: Vec<(Labels, Value)>) {
        self.family(name, help, SECONDS, MetricType::Histogram, series);
    }

    pub(super) fn family(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Option<&'static Unit>,
        kind: MetricType,
        series: Vec<(Labels, Value)>,
    ) {
        if !series.is_empty() {
            self.0.push(Family { name, help, unit, kind, series });
        }
    }
}
