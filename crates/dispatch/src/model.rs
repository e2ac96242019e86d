//! lambda-IO's cost model: how long a request takes on either side.
//!
//! With *D* bytes of input, of which the host holds the share *c*, and αD bytes of output, bandwidths
//! *B_s* of the medium, *B_d* of the link, *B_h* of the host's computing and βB_h of the device's:
//!
//! | | host | device |
//! |---|---|---|
//! | read (equations 1 and 3) | (1-c)D/B_s + (1-c)D/B_d + D/B_h | D/B_s + D/βB_h + αD/B_d |
//! | write (equation 2) | D/B_h + αD/B_d + αD/B_s | D/B_d + D/βB_h + αD/B_s |
//!
//! (The paper's print of equation 2 has the device compute at B_h; its text says βB_h.)
//!
//! All four are sums of three terms: getting the input, computing, and handing over the output. So a
//! side's [`Costs`] are seconds per byte of these three, which is also what a run can measure without
//! taking the medium and the link apart. Two things are added that the paper leaves out: the round trip of a request,
//! and *overlap*, the measured share of the shorter terms that passes while the longest one does (0 is the paper's sum,
//! 1 a perfect pipeline). The fixed time of the input is kept apart from the time of each byte.

use crate::fetch::Line;

/// Where a function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// With the caller.
    Host = 0,
    /// With the data.
    Device = 1,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Host, Self::Device];

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Host => Self::Device,
            Self::Device => Self::Host,
        }
    }

    /// `host` or `device`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device => "device",
        }
    }
}

/// Which way a function works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the file to the caller.
    Read,
    /// From the caller to the file.
    Write,
}

/// The paper's profiling variables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variables {
    /// *B_s*: the medium, bytes a second.
    pub storage_bytes_per_s: f64,
    /// *B_d*: the link.
    pub link_bytes_per_s: f64,
    /// *B_h*: computing on the host.
    pub host_bytes_per_s: f64,
    /// *α*: output bytes for each byte of input.
    pub alpha: f64,
    /// *β*: computing at the device over computing on the host.
    pub beta: f64,
}

/// The exact work that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Which way.
    pub direction: Direction,
    /// *D*.
    pub len_bytes: u64,
    /// *cD*.
    pub cached_bytes: u64,
}

impl Variables {
    /// Equations 1 to 3.
    #[must_use]
    pub fn estimate(&self, work: &Work) -> Estimate {
        let d = work.len_bytes as f64;
        let uncached = work.len_bytes.saturating_sub(work.cached_bytes) as f64;
        let (b_s, b_d, b_h) = (self.storage_bytes_per_s, self.link_bytes_per_s, self.host_bytes_per_s);
        let out = self.alpha * d;
        let (host_s, device_s) = match work.direction {
            Direction::Read => (uncached / b_s + uncached / b_d + d / b_h, d / b_s + d / (self.beta * b_h) + out / b_d),
            Direction::Write => (d / b_h + out / b_d + out / b_s, d / b_d + d / (self.beta * b_h) + out / b_s),
        };
        Estimate { host_s, device_s, split_s: None }
    }

    /// The terms of one side.
    #[must_use]
    pub fn costs(&self, side: Side, direction: Direction) -> Costs {
        let (storage, link) = (1.0 / self.storage_bytes_per_s, 1.0 / self.link_bytes_per_s);
        let host = 1.0 / self.host_bytes_per_s;
        let (input, run, output) = match (side, direction) {
            (Side::Host, Direction::Read) => (storage + link, host, 0.0),
            (Side::Device, Direction::Read) => (storage, host / self.beta, link),
            (Side::Host, Direction::Write) => (0.0, host, link + storage),
            (Side::Device, Direction::Write) => (link, host / self.beta, storage),
        };
        Costs {
            input_latency_s: 0.0,
            input_s_per_byte: input,
            run_s_per_byte: run,
            output_s_per_byte: output,
            overlap: 0.0,
        }
    }
}

/// One side's terms, in seconds per byte that is moved, computed on, and put out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Before the first byte of input that has to be fetched; below zero where the first bytes come faster than others.
    pub input_latency_s: f64,
    /// For each byte of input that has to be fetched.
    pub input_s_per_byte: f64,
    /// For each byte of input.
    pub run_s_per_byte: f64,
    /// For each byte of output.
    pub output_s_per_byte: f64,
    /// Share of the shorter terms that passes while the longest does.
    pub overlap: f64,
}

impl Costs {
    /// How long `len_bytes` take of which `moved_bytes` have to be fetched and which give `output_bytes`.
    #[must_use]
    pub fn time_s(&self, len_bytes: f64, moved_bytes: f64, output_bytes: f64) -> f64 {
        let terms = [
            Line { latency_s: self.input_latency_s, s_per_byte: self.input_s_per_byte }.at(moved_bytes),
            len_bytes * self.run_s_per_byte,
            output_bytes * self.output_s_per_byte,
        ];
        let sum: f64 = terms.iter().sum();
        let longest = terms.iter().copied().fold(0.0, f64::max);
        sum - self.overlap * (sum - longest)
    }
}

/// How long a request would take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// All of it on the host.
    pub host_s: f64,
    /// All of it at the device.
    pub device_s: f64,
    /// The bytes that the host holds there, the rest at the device, at the same time; if that can be.
    pub split_s: Option<f64>,
}

impl Estimate {
    /// On this side.
    #[must_use]
    pub fn on(&self, side: Side) -> f64 {
        match side {
            Side::Host => self.host_s,
            Side::Device => self.device_s,
        }
    }

    /// The side that is faster for the whole.
    #[must_use]
    pub fn faster(&self) -> Side {
        if self.host_s < self.device_s { Side::Host } else { Side::Device }
    }
}
