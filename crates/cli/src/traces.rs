//! Spans of this process for a collector of OpenTelemetry, if it is built with them and the environment names one.

#[cfg(not(feature = "otlp"))]
mod exporter {
    /// Where spans go: there is no such place.
    pub(crate) enum Exporter {}

    /// As long as it is there, spans are exported.
    pub(crate) enum Exporting {}

    impl Exporter {
        pub(crate) fn from_environment() -> Option<Self> {
            None
        }

        pub(crate) fn port(&self) -> u16 {
            match *self {}
        }

        pub(crate) fn start(self, _: &'static str) -> Option<Exporting> {
            match self {}
        }
    }
}

#[cfg(feature = "otlp")]
mod exporter {
    pub(crate) use diskside_trace::otlp::Exporting;
    use diskside_trace::otlp::Settings;

    /// Where spans go.
    pub(crate) struct Exporter(Settings);

    impl Exporter {
        /// Variables that other programs may have been meant by stop no command.
        pub(crate) fn from_environment() -> Option<Self> {
            let settings = Settings::from_environment().inspect_err(|error| tracing::warn!("no traces: {error}"));
            settings.ok().flatten().map(Self)
        }

        /// The port that it connects to.
        pub(crate) fn port(&self) -> u16 {
            self.0.port()
        }

        /// Exports the spans of this process, as those of a service. It starts threads.
        pub(crate) fn start(self, service: &'static str) -> Option<Exporting> {
            self.0.install(service).inspect_err(|error| tracing::warn!("no traces: {error}")).ok()
        }
    }
}

pub(crate) use exporter::{Exporter, Exporting};
