//! YCSB's ways to choose a record: uniform, scrambled zipfian, latest.
//!
//! Source: "Benchmarking Cloud Serving Systems with YCSB" (Cooper et al., 2010), whose zipfian numbers come from "Quickly Generating
//! Billion-Record Synthetic Databases" (Gray et al., 1994), and the generators of YCSB 0.17, of which constants are taken.

/// YCSB's exponent: the second item is chosen 2^-0.99 times as often as the first.
pub(crate) const THETA: f64 = 0.99;

/// Items of YCSB's scrambled distribution, independent of the number of records.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// `zeta(SCRAMBLED_ITEMS, THETA)`, as YCSB has it: summing it up takes a minute.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// Numbers from 0, of which 0 is the most frequent: number `i` has a share of `1 / (i + 1)^theta / zeta`.
#[derive(Debug, Clone)]
pub(crate) struct Zipfian {
    items: u64,
    theta: f64,
    zeta: f64,
    /// `zeta(2, theta)`.
    zeta_of_two: f64,
}

impl Zipfian {
    /// A distribution of at least one item. Takes time in proportion to their number.
    pub(crate) fn new(items: u64, theta: f64) -> Self {
        let items = items.max(1);
        Self::with_zeta(items, theta, sum_from(0, items, theta))
    }

    fn with_zeta(items: u64, theta: f64, zeta: f64) -> Self {
        Self {
            items,
            theta,
            zeta,
            zeta_of_two: sum_from(0, 2, theta),
        }
    }

    /// More items; takes time in proportion to how many have come.
    pub(crate) fn grow_to(&mut self, items: u64) {
        if items > self.items {
            self.zeta += sum_from(self.items, items, self.theta);
            self.items = items;
        }
    }

    /// The number that belongs to a share `u`, at least 0 and below 1, of all choices. Exact for the first two numbers, and close for
    /// the others, as Gray's inverse is.
    fn at(&self, u: f64) -> u64 {
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.zeta_of_two {
            return 1.min(self.items - 1);
        }
        let alpha = 1.0 / (1.0 - self.theta);
        let eta = (1.0 - (2.0 / self.items as f64).powf(1.0 - self.theta))
            / (1.0 - self.zeta_of_two / self.zeta);
        let number = self.items as f64 * (eta * u - eta + 1.0).powf(alpha);
        (number as u64).min(self.items - 1)
    }

    pub(crate) fn next(&self, rng: &mut fastrand::Rng) -> u64 {
        self.at(rng.f64())
    }
}

/// The sum of `1 / i^theta` for `i` above `from` up to `to`.
fn sum_from(from: u64, to: u64, theta: f64) -> f64 {
    (from + 1..=to).map(|i| (i as f64).powf(-theta)).sum()
}

/// The 64-bit FNV-1 hash of a number's bytes as YCSB makes it: each octet from the lowest is taken in before the multiplication, and the
/// result loses its sign.
pub(crate) fn fnv_64(mut number: u64) -> u64 {
    const OFFSET_BASIS: u64 = 0xCBF2_9CE4_8422_2325;
    const PRIME: u64 = 1_099_511_628_211;
    let mut hash = OFFSET_BASIS;
    for _ in 0..8 {
        hash = (hash ^ (number & 0xff)).wrapping_mul(PRIME);
        number >>= 8;
    }
    hash.cast_signed().unsigned_abs()
}

/// How records are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// All with the same frequency.
    Uniform,
    /// A few very often, spread over all.
    Zipfian,
    /// The newest most often.
    Latest,
}

impl Keys {
    /// The way of this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "uniform" => Some(Self::Uniform),
            "zipfian" => Some(Self::Zipfian),
            "latest" => Some(Self::Latest),
            _ => None,
        }
    }
}

/// Chooses among records that may become more.
#[derive(Debug, Clone)]
pub(crate) enum Chooser {
    Uniform,
    Scrambled {
        zipfian: Zipfian,
        /// Numbers are spread over this range, which includes records that do not exist yet: so the
        /// popular ones do not change.
        room: u64,
    },
    Latest(Zipfian),
}

impl Chooser {
    /// For `records` existing records, of which at most `growth` more are expected.
    pub(crate) fn new(keys: Keys, records: u64, growth: u64) -> Self {
        match keys {
            Keys::Uniform => Self::Uniform,
            Keys::Zipfian => Self::Scrambled {
                zipfian: Zipfian::with_zeta(SCRAMBLED_ITEMS, THETA, SCRAMBLED_ZETA),
                room: records.max(1) + growth,
            },
            Keys::Latest => Self::Latest(Zipfian::new(records, THETA)),
        }
    }

    /// Chooses one of the records below `count`, which is at least 1 and only grows.
    pub(crate) fn choose(&mut self, count: u64, rng: &mut fastrand::Rng) -> u64 {
        match self {
            Self::Uniform => rng.u64(..count),
            Self::Scrambled { zipfian, room } => {
                let room = (*room).max(1);
                loop {
                    let record = fnv_64(zipfian.next(rng)) % room;
                    if record < count {
                        return record;
                    }
                }
            }
            Self::Latest(zipfian) => {
                zipfian.grow_to(count);
                count - 1 - zipfian.next(rng).min(count - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 400_000;

    fn counts(items: usize, mut draw: impl FnMut(&mut fastrand::Rng) -> u64) -> Vec<u32> {
        let mut rng = fastrand::Rng::with_seed(17);
        let mut counts = vec![0; items];
        for _ in 0..DRAWS {
            counts[draw(&mut rng) as usize] += 1;
        }
        counts
    }

    /// Within four standard deviations of a binomial count.
    fn assert_share(count: u32, share: f64, what: &str) {
        let expected = DRAWS as f64 * share;
        let deviation = (expected * (1.0 - share)).sqrt();
        let off = (f64::from(count) - expected).abs();
        assert!(off <= 4.0 * deviation, "{what}: {count}, not {expected:.0}");
    }

    #[test]
    fn the_first_two_ranks_have_exactly_their_shares() {
        for (items, theta) in [(1_000, THETA), (100, 0.5), (2, THETA)] {
            let zipfian = Zipfian::new(items, theta);
            let zeta = sum_from(0, items, theta);
            let counts = counts(items as usize, |rng| zipfian.next(rng));
            assert_share(counts[0], 1.0 / zeta, "rank 1");
            assert_share(counts[1], 2f64.powf(-theta) / zeta, "rank 2");
        }
    }

    #[test]
    fn the_first_ranks_together_have_their_share_as_far_as_the_inverse_is_exact() {
        let zipfian = Zipfian::new(1_000, THETA);
        let counts = counts(1_000, |rng| zipfian.next(rng));
        for first in [10, 100, 500] {
            let share = f64::from(counts[..first].iter().sum::<u32>()) / DRAWS as f64;
            let exact = sum_from(0, first as u64, THETA) / sum_from(0, 1_000, THETA);
            assert!(
                (share - exact).abs() < 0.02,
                "{first}: {share}, not {exact}"
            );
        }
        // Later tenths of the ranks are chosen less and less.
        let tenths: Vec<u32> = counts.chunks(100).map(|tenth| tenth.iter().sum()).collect();
        assert!(tenths.is_sorted_by(|a, b| a > b), "{tenths:?}");
    }

    #[test]
    fn every_item_is_chosen_and_none_beyond() {
        let zipfian = Zipfian::new(300, THETA);
        assert!(counts(300, |rng| zipfian.next(rng)).iter().all(|n| *n > 0));
        for items in [1, 2, 3] {
            let zipfian = Zipfian::new(items, THETA);
            for u in [0.0, 0.3, 0.6, 0.999_999_999_999_999_9] {
                assert!(zipfian.at(u) < items);
            }
        }
    }

    #[test]
    fn growing_gives_what_a_new_one_of_that_size_has() {
        let mut grown = Zipfian::new(10, THETA);
        grown.grow_to(5_000);
        grown.grow_to(100);
        let new = Zipfian::new(5_000, THETA);
        assert!((grown.zeta - new.zeta).abs() < 1e-9);
        assert_eq!(grown.at(0.77), new.at(0.77));
    }

    #[test]
    fn the_constant_of_the_scrambled_items_is_their_zeta() {
        // Euler and Maclaurin: a sum's tail is the integral and half of both ends.
        let exact_to = 1_000_000;
        let (a, b) = (exact_to as f64, SCRAMBLED_ITEMS as f64);
        let integral = (b.powf(1.0 - THETA) - a.powf(1.0 - THETA)) / (1.0 - THETA);
        let ends = (b.powf(-THETA) - a.powf(-THETA)) / 2.0;
        let zeta = sum_from(0, exact_to, THETA) + integral + ends;
        assert!((zeta - SCRAMBLED_ZETA).abs() < 1e-6, "{zeta}");
    }

    #[test]
    fn hashes_are_those_of_the_first_keys_that_ycsb_loads() {
        let keys = [
            6_284_781_860_667_377_211,
            8_517_097_267_634_966_620,
            1_820_151_046_732_198_393,
        ];
        assert_eq!([fnv_64(0), fnv_64(1), fnv_64(2)], keys);
    }

    #[test]
    fn scrambled_favourites_are_spread_and_have_their_share() {
        let mut chooser = Chooser::new(Keys::Zipfian, 1_000, 0);
        let counts = counts(1_000, |rng| chooser.choose(1_000, rng));
        let favourite = (fnv_64(0) % 1_000) as usize;
        let most = counts.iter().max().copied();
        assert_eq!(most, Some(counts[favourite]));
        // Other records are sometimes mapped to the same one.
        let share = f64::from(counts[favourite]) / DRAWS as f64;
        let own = 1.0 / SCRAMBLED_ZETA;
        assert!(share >= own * 0.98 && share < own * 1.1, "{share}");
        assert!(counts.iter().all(|n| *n > 0), "some record is never chosen");
        let halves = counts.split_at(500);
        let first = f64::from(halves.0.iter().sum::<u32>()) / DRAWS as f64;
        assert!((0.3..0.7).contains(&first), "{first}");
    }

    #[test]
    fn records_that_are_not_there_yet_are_not_chosen() {
        let mut chooser = Chooser::new(Keys::Zipfian, 100, 100);
        let counts = counts(200, |rng| chooser.choose(120, rng));
        assert!(counts[120..].iter().all(|n| *n == 0));
        assert!(counts[..120].iter().all(|n| *n > 0));
    }

    #[test]
    fn the_latest_record_is_the_favourite_and_stays_it_when_records_come() {
        let mut chooser = Chooser::new(Keys::Latest, 50, 0);
        for count in [50, 60, 1_000] {
            let counts = counts(1_000, |rng| chooser.choose(count, rng));
            let zeta = sum_from(0, count, THETA);
            assert_share(counts[count as usize - 1], 1.0 / zeta, "the last");
            assert!(counts[count as usize..].iter().all(|n| *n == 0));
        }
    }

    #[test]
    fn uniform_choices_are_even() {
        let mut chooser = Chooser::new(Keys::Uniform, 50, 0);
        for count in counts(50, |rng| chooser.choose(50, rng)) {
            assert_share(count, 1.0 / 50.0, "one of fifty");
        }
    }
}
