//! A word whose end is being cut off.

/// The letters of a word, and how many of them are left. Those that were cut off can be taken back.
pub(super) struct Word {
    letters: Vec<char>,
    len: usize,
}

impl Word {
    pub(super) fn new(word: &str) -> Self {
        let letters: Vec<char> = word.chars().collect();
        Self {
            len: letters.len(),
            letters,
        }
    }

    /// Runs `stem` over the letters of `word`.
    pub(super) fn change(word: &mut String, stem: impl FnOnce(&mut Self)) {
        let mut letters = Self::new(word);
        stem(&mut letters);
        word.clear();
        word.extend(letters.left());
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn left(&self) -> &[char] {
        &self.letters[..self.len]
    }

    pub(super) fn left_mut(&mut self) -> &mut [char] {
        &mut self.letters[..self.len]
    }

    /// Returns the letter that is the `back`th from the end; the last is the first.
    pub(super) fn end(&self, back: usize) -> char {
        self.letters[self.len - back]
    }

    pub(super) fn set_end(&mut self, back: usize, letter: char) {
        let at = self.len - back;
        self.letters[at] = letter;
    }

    /// Writes over the last letters.
    pub(super) fn write_end(&mut self, ending: &str) {
        let count = ending.chars().count();
        for (at, letter) in ending.chars().enumerate() {
            self.set_end(count - at, letter);
        }
    }

    /// Returns whether the word has this ending, regardless of its length.
    pub(super) fn ends(&self, ending: &str) -> bool {
        let mut letters = self.left().iter().rev();
        ending
            .chars()
            .rev()
            .all(|letter| letters.next() == Some(&letter))
    }

    /// Returns whether it has one of these endings.
    pub(super) fn ends_in(&self, endings: &[&str]) -> bool {
        endings.iter().any(|ending| self.ends(ending))
    }

    pub(super) fn begins(&self, beginning: &str) -> bool {
        let mut letters = self.left().iter();
        beginning
            .chars()
            .all(|letter| letters.next() == Some(&letter))
    }

    /// Returns whether it is this word.
    pub(super) fn is(&self, word: &str) -> bool {
        self.left().iter().copied().eq(word.chars())
    }

    /// Returns whether it is one of these.
    pub(super) fn is_in(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(word))
    }

    /// Cuts letters off.
    pub(super) fn cut(&mut self, count: usize) {
        self.len -= count;
    }

    /// Takes letters back that were cut off.
    pub(super) fn restore(&mut self, count: usize) {
        self.len += count;
        while self.letters.len() < self.len {
            self.letters.push('\0');
        }
    }

    /// Removes letters at the start.
    pub(super) fn cut_beginning(&mut self, count: usize) {
        self.letters.drain(..count);
        self.len -= count;
    }

    /// Removes the letter at `at`.
    pub(super) fn remove(&mut self, at: usize) {
        self.letters.remove(at);
        self.len -= 1;
    }

    /// Cuts the first of the endings off that the word has and that leaves it long enough: each is
    /// with the length that the word has to exceed, and how much is cut. Whether there was one.
    pub(super) fn cut_first(&mut self, endings: &[(usize, &[&str], usize)]) -> bool {
        let found = endings
            .iter()
            .find(|(more_than, endings, _)| self.len > *more_than && self.ends_in(endings));
        if let Some((.., count)) = found {
            self.cut(*count);
        }
        found.is_some()
    }

    /// Changes each letter.
    pub(super) fn map(&mut self, change: impl Fn(char) -> char) {
        for letter in self.left_mut() {
            *letter = change(*letter);
        }
    }
}
