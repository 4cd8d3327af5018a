//! Keys at random: uniform, or with the skew of a Zipfian distribution.

/// Scatters ranks over keys: odd, so that it is a permutation of all 64-bit numbers.
const SCATTER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Numbers below a bound of a Zipfian distribution (Gray and others, "Quickly generating billion-record synthetic databases", 1994), with
/// ranks scattered over the numbers; uniform ones without skew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zipf {
    rows: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Numbers below `rows`, with a skew of at least 0 and below 1.
    pub(crate) fn new(rows: u64, theta: f64) -> Zipf {
        let zeta_of = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let (mut zeta, mut eta) = (0.0, 0.0);
        if theta > 0.0 {
            zeta = zeta_of(rows);
            eta = (1.0 - (2.0 / rows as f64).powf(1.0 - theta)) / (1.0 - zeta_of(2) / zeta);
        }
        Zipf { rows, theta, alpha: 1.0 / (1.0 - theta), zeta, eta }
    }

    /// The next number.
    pub(crate) fn next(&self, random: &mut fastrand::Rng) -> u64 {
        if self.theta == 0.0 {
            return random.u64(..self.rows);
        }
        let uniform = random.f64();
        let scaled = uniform * self.zeta;
        let rank = if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            1
        } else {
            (self.rows as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha)) as u64
        };
        rank.min(self.rows - 1).wrapping_mul(SCATTER) % self.rows
    }
}

/// The key of an inserted row: no row that the table has at first has it, and keys follow each other in no order.
pub(crate) fn inserted_key(number: u64) -> u64 {
    1 << 63 | number.wrapping_mul(SCATTER) >> 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skew_prefers_few_keys_and_none_prefers_no_key() {
        let most = |theta| {
            let (zipf, mut random) = (Zipf::new(1000, theta), fastrand::Rng::with_seed(7));
            let mut counts = vec![0_u32; 1000];
            (0..100_000).for_each(|_| counts[zipf.next(&mut random) as usize] += 1);
            counts.into_iter().max().unwrap()
        };
        assert!(most(0.0) < 200, "{}", most(0.0));
        // The first rank has 1 / (sum of 1 / rank^0.99) = 13 % of all.
        assert!((10_000..16_000).contains(&most(0.99)), "{}", most(0.99));
    }

    #[test]
    fn inserted_keys_differ() {
        let keys: std::collections::HashSet<u64> = (0..10_000).map(inserted_key).collect();
        assert_eq!(keys.len(), 10_000);
        assert!(keys.iter().all(|key| key >> 63 == 1));
    }
}
