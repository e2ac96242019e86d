//! The last few measurements of one variable.

/// Measurements that are kept.
const LEN: usize = 9;

/// The last nine measurements. Their mean leaves out the least and the greatest third, so that a few
/// outliers are not heard. Of five measurements that is lambda-IO's trimmed mean.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    kept: [f64; LEN],
    count: u64,
}

impl Window {
    pub(crate) fn push(&mut self, value: f64) {
        if value.is_finite() {
            self.kept[(self.count % LEN as u64) as usize] = value;
            self.count += 1;
        }
    }

    /// Measurements ever.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Forgets all but what comes from now on.
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        let len = self.count.min(LEN as u64) as usize;
        let mut sorted = self.kept;
        let sorted = &mut sorted[..len];
        sorted.sort_by(f64::total_cmp);
        let middle = &sorted[len / 3..len - len / 3];
        (len > 0).then(|| middle.iter().sum::<f64>() / middle.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_outliers_is_not_heard_and_a_change_is() {
        let mut window = Window::default();
        assert_eq!(window.mean(), None);
        for value in [2.0, 2.0, 900.0, f64::NAN, 1.0, 3.0] {
            window.push(value);
        }
        assert_eq!((window.mean(), window.count()), (Some(7.0 / 3.0), 5));
        for value in [0.0, 2.0, 2.0, 900.0] {
            window.push(value);
        }
        assert_eq!(window.mean(), Some(2.0));
        for _ in 0..6 {
            window.push(8.0);
        }
        assert_eq!(window.mean(), Some(8.0));
        window.restart();
        assert_eq!((window.mean(), window.count()), (None, 0));
    }
}
