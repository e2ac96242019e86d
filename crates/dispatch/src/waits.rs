//! How long calls wait at a device that others use as well.

/// Readings that are kept.
const READINGS: usize = 3;

/// The times that calls waited for an engine, before each turn, by a device's answers.
///
/// The median of the last three: one of them may be an outlier, and two say that the world has changed. The caller
/// leaves out those of calls that waited for each other: these it can count
/// ([`Conditions::device_waiting`](crate::Conditions::device_waiting)).
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// Seconds for a turn.
    readings: [f64; READINGS],
}

impl Waits {
    /// A call of so many turns waited so long in all.
    pub fn note(&mut self, waited_s: f64, turns: u64) {
        if waited_s.is_finite() {
            self.readings.rotate_left(1);
            self.readings[READINGS - 1] = waited_s.max(0.0) / turns.max(1) as f64;
        }
    }

    /// How long a turn is waited for.
    #[must_use]
    pub fn turn_s(&self) -> f64 {
        let mut sorted = self.readings;
        sorted.sort_by(f64::total_cmp);
        sorted[READINGS / 2]
    }

    /// The device says that engines are free.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
