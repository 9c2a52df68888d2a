mod differential;
mod followed;
mod refused;
mod scanner;
mod table;

/// A cheap generator of repeatable choices.
pub(super) struct Choices(pub u64);

impl Choices {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }

    pub fn of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }
}
