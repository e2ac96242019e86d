//! The limits that a host can have, and their names.

/// How much a host may take; `None`: what every host may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostLimits {
    /// Commands a second.
    pub iops: Option<u64>,
    /// Bytes of data a second that commands move, in either direction.
    pub bytes_per_s: Option<u64>,
    /// Its weight where functions of several hosts want to compute.
    pub cpu_share: Option<u64>,
    /// Bytes that its calls use, and that wait or are kept for it.
    pub memory_bytes: Option<u64>,
    /// Programs that it has loaded.
    pub programs: Option<u64>,
    /// Connections.
    pub connections: Option<u64>,
    /// Bytes of its named states.
    pub state_bytes: Option<u64>,
    /// Bytes of its files, in each export.
    pub space_bytes: Option<u64>,
    /// Its files and directories, in each export.
    pub files: Option<u64>,
}

/// One of the limits of a [`HostLimits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Commands a second.
    Iops,
    /// Bytes a second.
    BytesPerS,
    /// Weight.
    CpuShare,
    /// Bytes.
    Memory,
    /// Programs.
    Programs,
    /// Connections.
    Connections,
    /// Bytes of named states.
    State,
    /// Bytes of files in an export.
    Space,
    /// Files in an export.
    Files,
}

impl Limit {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Iops,
        Self::BytesPerS,
        Self::CpuShare,
        Self::Memory,
        Self::Programs,
        Self::Connections,
        Self::State,
        Self::Space,
        Self::Files,
    ];

    /// How operators write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iops => "iops",
            Self::BytesPerS => "bytes_per_s",
            Self::CpuShare => "cpu_share",
            Self::Memory => "memory",
            Self::Programs => "programs",
            Self::Connections => "connections",
            Self::State => "state",
            Self::Space => "space",
            Self::Files => "files",
        }
    }
}

/// The weight of a host that has none of its own.
pub const CPU_SHARE: u64 = 100;

impl HostLimits {
    /// In the order of [`Limit::ALL`].
    pub(super) fn values(&self) -> [Option<u64>; 9] {
        let Self { iops, bytes_per_s, cpu_share, memory_bytes, programs, connections, .. } = *self;
        let Self { state_bytes, space_bytes, files, .. } = *self;
        [iops, bytes_per_s, cpu_share, memory_bytes, programs, connections, state_bytes, space_bytes, files]
    }

    fn of_values(values: [Option<u64>; 9]) -> Self {
        let [iops, bytes_per_s, cpu_share, memory_bytes, programs, connections, state_bytes, space_bytes, files] =
            values;
        Self { iops, bytes_per_s, cpu_share, memory_bytes, programs, connections, state_bytes, space_bytes, files }
    }

    /// Whether it says how much a host may hold in exports.
    pub fn limits_space(&self) -> bool {
        self.space_bytes.is_some() || self.files.is_some()
    }

    /// Whether it limits nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The smaller of each.
    pub(super) fn least(self, other: Self) -> Self {
        let (a, b) = (self.values(), other.values());
        Self::of_values(std::array::from_fn(|at| a[at].into_iter().chain(b[at]).min()))
    }

    /// These, and where they say nothing those.
    pub(super) fn or(self, other: Self) -> Self {
        let (a, b) = (self.values(), other.values());
        Self::of_values(std::array::from_fn(|at| a[at].or(b[at])))
    }
}

/// No limit.
pub(super) const NONE: u64 = u64::MAX;
