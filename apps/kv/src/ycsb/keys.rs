//! Which key is next.

use fastrand::Rng;

/// How keys are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// Each as often as any other.
    Uniform,
    /// Few very often; which ones is scattered over the key space.
    Zipfian,
    /// The newer, the more often.
    Latest,
}

/// Chooses keys.
#[derive(Clone, Debug)]
pub struct KeyChooser {
    distribution: Distribution,
    zipfian: Option<Zipfian>,
}

impl KeyChooser {
    /// Chooses among `keys` keys, and more as they come.
    #[must_use]
    pub fn new(distribution: Distribution, keys: u64) -> Self {
        let zipfian = (distribution != Distribution::Uniform).then(|| Zipfian::new(keys));
        Self { distribution, zipfian }
    }

    /// A key of `0..keys`.
    pub fn choose(&mut self, keys: u64, dice: &mut Rng) -> u64 {
        match (&mut self.zipfian, self.distribution) {
            (Some(zipfian), Distribution::Latest) => keys - 1 - zipfian.rank(keys, dice),
            (Some(zipfian), _) => scatter(zipfian.rank(keys, dice)) % keys,
            (None, _) => dice.u64(0..keys),
        }
    }
}

/// Ranks by Zipf's law: rank r with a weight of 1 / (r + 1)^0.99. After Gray and others, "Quickly
/// generating billion-record synthetic databases", 1994.
#[derive(Clone, Debug)]
struct Zipfian {
    keys: u64,
    zeta: f64,
    eta: f64,
}

const THETA: f64 = 0.99;

impl Zipfian {
    fn new(keys: u64) -> Self {
        let mut zipfian = Self { keys: 0, zeta: 0.0, eta: 0.0 };
        zipfian.grow(keys);
        zipfian
    }

    /// Adds the weights of new ranks.
    fn grow(&mut self, keys: u64) {
        for rank in self.keys..keys {
            self.zeta += weight(rank);
        }
        self.keys = keys;
        let first_two = weight(0) + weight(1);
        self.eta = (1.0 - (2.0 / keys as f64).powf(1.0 - THETA)) / (1.0 - first_two / self.zeta);
    }

    fn rank(&mut self, keys: u64, dice: &mut Rng) -> u64 {
        if keys > self.keys {
            self.grow(keys);
        }
        let u = dice.f64();
        let at = u * self.zeta;
        if at < weight(0) {
            return 0;
        }
        if at < weight(0) + weight(1) {
            return 1.min(self.keys - 1);
        }
        let rank = (self.keys as f64 * (self.eta * u - self.eta + 1.0).powf(1.0 / (1.0 - THETA))) as u64;
        rank.min(self.keys - 1)
    }
}

fn weight(rank: u64) -> f64 {
    1.0 / ((rank + 1) as f64).powf(THETA)
}

/// FNV-1a of the eight bytes, as YCSB scatters.
fn scatter(rank: u64) -> u64 {
    rank.to_le_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of the hottest key of 1,000 is 1 / zeta(1000, 0.99), about 13.1 %.
    #[test]
    fn ranks_follow_the_law() {
        let mut zipfian = Zipfian::new(1000);
        let mut dice = Rng::with_seed(1);
        let mut counts = vec![0u32; 1000];
        for _ in 0..200_000 {
            counts[zipfian.rank(1000, &mut dice) as usize] += 1;
        }
        for rank in [0u64, 1, 9, 99] {
            let share = f64::from(counts[rank as usize]) / 200_000.0;
            let law = weight(rank) / zipfian.zeta;
            assert!((share / law - 1.0).abs() < 0.25, "rank {rank}: {share} instead of {law}");
        }
    }

    #[test]
    fn every_distribution_keeps_to_the_keys_and_reaches_both_ends() {
        for distribution in [Distribution::Uniform, Distribution::Zipfian, Distribution::Latest] {
            for keys in [1u64, 2, 3, 50] {
                let mut chooser = KeyChooser::new(distribution, 1);
                let mut dice = Rng::with_seed(7);
                let chosen: Vec<u64> = (0..5000).map(|_| chooser.choose(keys, &mut dice)).collect();
                assert!(chosen.iter().all(|key| *key < keys), "{distribution:?} of {keys}");
                if distribution != Distribution::Zipfian {
                    assert!(chosen.contains(&0) && chosen.contains(&(keys - 1)), "{distribution:?} of {keys}");
                }
            }
        }
    }

    #[test]
    fn growing_is_as_if_it_had_been_that_large() {
        let (mut grown, whole) = (Zipfian::new(10), Zipfian::new(1000));
        grown.grow(1000);
        assert!((grown.zeta - whole.zeta).abs() < 1e-9 && (grown.eta - whole.eta).abs() < 1e-9);
    }
}
