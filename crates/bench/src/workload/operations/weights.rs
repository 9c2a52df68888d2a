//! Operations and how often each is chosen.

use super::kind::Kind;

/// Kinds with their weights; each weight is above 0.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Weights(Vec<(Kind, f64)>);

impl Weights {
    pub(crate) fn new(weights: &[(Kind, f64)]) -> Self {
        Self(weights.to_vec())
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        self.0.iter().map(|(kind, _)| *kind)
    }

    pub(crate) fn has(&self, wanted: Kind) -> bool {
        self.kinds().any(|kind| kind == wanted)
    }

    /// A kind with each weight's share of the chances.
    pub(crate) fn choose(&self, rng: &mut fastrand::Rng) -> Kind {
        let total: f64 = self.0.iter().map(|(_, weight)| weight).sum();
        let mut left = rng.f64() * total;
        for (kind, weight) in &self.0 {
            if left < *weight {
                return *kind;
            }
            left -= weight;
        }
        // Rounding alone leads here.
        self.0[self.0.len() - 1].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_chosen_as_often_as_its_weight_says() {
        let weights = Weights::new(&[(Kind::Read, 70.0), (Kind::Update, 25.0), (Kind::Bulk, 5.0)]);
        let mut rng = fastrand::Rng::with_seed(3);
        let mut counts = [0; 3];
        for _ in 0..100_000 {
            counts[match weights.choose(&mut rng) {
                Kind::Read => 0,
                Kind::Update => 1,
                _ => 2,
            }] += 1;
        }
        for (count, expected) in counts.into_iter().zip([70_000_i32, 25_000, 5_000]) {
            assert!((count - expected).abs() < 700, "{counts:?}");
        }
    }
}
