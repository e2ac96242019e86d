//! The exporter: spans go to a collector of OpenTelemetry, over HTTP, in batches.

use crate::{Recorded, Side, Start, TraceContext, Tracer};
use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState,
    Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};
use std::time::SystemTime;

/// Where spans go, and the same for all kinds of telemetry.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const DISABLED: &str = "OTEL_SDK_DISABLED";

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtlpError {
    /// A protocol that is not built in.
    #[error("{variable} is {value:?}, and spans are exported by http/protobuf alone")]
    Protocol {
        /// The variable that says so.
        variable: &'static str,
        /// What it says.
        value: String,
    },
    /// The endpoint is not a URL of HTTP without TLS.
    #[error("{variable} is {value:?}, and spans go to a URL such as http://127.0.0.1:4318, without TLS")]
    Endpoint {
        /// The variable that says so.
        variable: &'static str,
        /// What it says.
        value: String,
    },
    /// The exporter cannot be made.
    #[error("spans cannot be exported: {0}")]
    Exporter(String),
}

/// Where the environment wants spans to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    port: u16,
}

impl Settings {
    /// The settings in the variables of OpenTelemetry; `None`: spans are not wanted.
    ///
    /// # Errors
    /// They ask for something that is not built in.
    pub fn from_environment() -> Result<Option<Self>, OtlpError> {
        Self::from_variables(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, OtlpError> {
        let first = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, variable(name)?)));
        let is_disabled = variable(DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let Some((name, value)) = first(ENDPOINTS).filter(|_| !is_disabled) else { return Ok(None) };
        if let Some((variable, value)) = first(PROTOCOLS).filter(|(_, value)| value != "http/protobuf") {
            return Err(OtlpError::Protocol { variable, value });
        }
        match port_of(&value) {
            Some(port) => Ok(Some(Self { port })),
            None => Err(OtlpError::Endpoint { variable: name, value }),
        }
    }

    /// The port that the exporter connects to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Has all spans of this process exported, as `service` unless `OTEL_SERVICE_NAME` names it. It starts threads.
    ///
    /// # Errors
    /// The exporter cannot be made.
    pub fn install(&self, service: &'static str) -> Result<Exporting, OtlpError> {
        let failed = |error: opentelemetry_otlp::ExporterBuildError| OtlpError::Exporter(error.to_string());
        let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary).build();
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name(service);
        }
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter.map_err(failed)?)
            .with_resource(resource.build())
            .build();
        crate::install(Box::new(Otlp(provider.tracer("diskside"))));
        Ok(Exporting(provider))
    }
}

/// The port of a URL.
fn port_of(url: &str) -> Option<u16> {
    let authority = url.strip_prefix("http://")?.split(['/', '?']).next().filter(|authority| !authority.is_empty())?;
    match authority.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => port.parse().ok(),
        _ => Some(80),
    }
}

/// As long as it is there, spans are exported. When it is dropped, those that are left are sent.
#[derive(Debug)]
pub struct Exporting(SdkTracerProvider);

impl Drop for Exporting {
    fn drop(&mut self) {
        if let Err(error) = self.0.force_flush() {
            tracing::warn!("some spans were not exported: {error}");
        }
        // Nothing is left that could fail.
        let _ = self.0.shutdown();
    }
}

struct Otlp(SdkTracer);

impl Tracer for Otlp {
    fn start(&self, start: Start) -> Box<dyn Recorded> {
        let kind = match start.side {
            Side::Client => SpanKind::Client,
            Side::Server => SpanKind::Server,
            Side::Internal => SpanKind::Internal,
        };
        let builder = self.0.span_builder(start.name).with_kind(kind).with_start_time(start.at);
        let parent = start.parent.map_or_else(Context::new, |parent| {
            Context::new().with_remote_span_context(SpanContext::new(
                TraceId::from_bytes(parent.trace_id),
                SpanId::from_bytes(parent.span_id),
                TraceFlags::new(parent.flags),
                true,
                TraceState::NONE,
            ))
        });
        Box::new(One(self.0.build_with_context(builder, &parent)))
    }
}

struct One(Span);

impl Recorded for One {
    fn context(&self) -> Option<TraceContext> {
        let context = self.0.span_context();
        context.is_valid().then(|| TraceContext {
            trace_id: context.trace_id().to_bytes(),
            span_id: context.span_id().to_bytes(),
            flags: context.trace_flags().to_u8(),
        })
    }

    fn text(&mut self, key: &'static str, value: String) {
        self.0.set_attribute(KeyValue::new(key, value));
    }

    fn number(&mut self, key: &'static str, value: i64) {
        self.0.set_attribute(KeyValue::new(key, value));
    }

    fn fail(&mut self, why: String) {
        self.0.set_status(Status::error(why));
    }

    fn end(&mut self, at: SystemTime) {
        self.0.end_with_timestamp(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Settings::from_variables(find).map_err(|error| error.to_string())
    }

    #[test]
    fn the_variables_of_opentelemetry_switch_it_on() {
        let general = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        let of_traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://[::1]/v1/traces");
        assert_eq!(settings(&[]), Ok(None));
        assert_eq!(settings(&[general]), Ok(Some(Settings { port: 4318 })));
        assert_eq!(settings(&[general, of_traces]), Ok(Some(Settings { port: 80 })));
        assert_eq!(settings(&[general, ("OTEL_SDK_DISABLED", "TRUE")]), Ok(None));
        let protocol = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        assert_eq!(settings(&[protocol]), Ok(None), "nothing is exported");
        let refused = settings(&[general, protocol]).unwrap_err();
        assert_eq!(refused, "OTEL_EXPORTER_OTLP_PROTOCOL is \"grpc\", and spans are exported by http/protobuf alone");
        for wrong in ["collector:4318", "http://", "http://host:port", "https://host"] {
            let refused = settings(&[("OTEL_EXPORTER_OTLP_ENDPOINT", wrong)]).unwrap_err();
            assert!(refused.contains("such as http://127.0.0.1:4318"), "{refused}");
        }
    }
}
