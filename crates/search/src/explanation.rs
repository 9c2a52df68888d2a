//! The explanation of a score.

use serde::Serialize;

/// The contribution of a clause to a score.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The number.
    pub value: f32,
    /// A description for people.
    pub description: String,
    /// The parts that it is computed from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Explanation>,
}

impl Explanation {
    pub(crate) fn new(value: f32, description: impl Into<String>) -> Explanation {
        Explanation::of(value, description, vec![])
    }

    /// Returns roughly how much memory it takes, which is also its size in an answer, in bytes.
    pub fn bytes(&self) -> usize {
        let details = self.details.iter().map(Explanation::bytes);
        size_of::<Explanation>() + self.description.len() + details.sum::<usize>()
    }

    pub(crate) fn of(
        value: f32,
        description: impl Into<String>,
        details: Vec<Explanation>,
    ) -> Explanation {
        Explanation {
            value,
            description: description.into(),
            details,
        }
    }
}
