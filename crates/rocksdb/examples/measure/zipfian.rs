//! YCSB's zipfian: rank k is chosen with a frequency of k^-0.99.

pub(crate) struct Zipfian {
    items: u64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    const THETA: f64 = 0.99;

    pub(crate) fn new(items: u64) -> Self {
        let zeta_of = |n: u64| (1..=n).map(|i| 1.0 / (i as f64).powf(Self::THETA)).sum::<f64>();
        let zeta = zeta_of(items);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - Self::THETA)) / (1.0 - zeta_of(2) / zeta);
        Self { items, zeta, eta }
    }

    /// The method of Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994.
    pub(crate) fn next(&self, dice: &mut fastrand::Rng) -> u64 {
        let u = dice.f64();
        let uz = u * self.zeta;
        if uz < 1.0 {
            0
        } else if uz < 1.0 + 0.5_f64.powf(Self::THETA) {
            1
        } else {
            (self.items as f64 * (self.eta * u - self.eta + 1.0).powf(1.0 / (1.0 - Self::THETA))) as u64
        }
    }
}
