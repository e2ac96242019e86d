//! A look at a server in the text format of OpenMetrics, which Prometheus reads.

mod families;
mod inside;
mod reactors;
mod statistics;
#[cfg(test)]
mod tests;

use prometheus_client::encoding::text;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::seen::Seen;
use families::{Family, Lines, Told, Value};

/// The media type.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The text of one scrape; nothing was seen when the server cannot be reached.
pub fn page(seen: Option<&Seen>) -> String {
    let mut text = String::new();
    let mut registry = Registry::with_prefix("diskside");
    registry.register_collector(Box::new(Told(Lines::of(seen))));
    text::encode(&mut text, &registry).expect("a string takes every metric");
    text
}

impl Lines {
    fn of(seen: Option<&Seen>) -> Vec<Family> {
        let mut lines = Self::default();
        let up = Value::Number(f64::from(u8::from(seen.is_some())));
        lines.one("up", "Whether the server could be asked: 1, or 0 if it did not answer", None, MetricType::Gauge, up);
        if let Some(seen) = seen {
            lines.totals(&seen.page);
            lines.entries(&seen.entries);
            lines.disks(&seen.disks());
            if let Some(inside) = &seen.inside {
                lines.inside(inside, &seen.entries);
            }
        }
        lines.0
    }
}
