//! Parts of a text with the words that a query found, as Lucene 4.6's simple highlighter cuts them
//! out.
//!
//! A text is cut into fragments of about one length at the words' ends. Those with most of the
//! query's words come first; neighbours become one. Words of phrases count only where they stand as
//! the phrase has them.

use crate::query::{PhraseTerm, Query};
use crate::{Analyzer, Token};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// How fragments are cut and marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Inserted before a matching word.
    pub pre_tag: String,
    /// Inserted after it.
    pub post_tag: String,
    /// The most fragments; at least one.
    pub number: usize,
    /// The length of a fragment in UTF-16 units; 0 is [`DEFAULT_SIZE`].
    pub size: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pre_tag: "<em>".to_owned(),
            post_tag: "</em>".to_owned(),
            number: 1,
            size: 0,
        }
    }
}

/// Default length of a fragment.
pub const DEFAULT_SIZE: usize = 100;

/// Maximum UTF-16 units of a text that are searched for words.
pub const MAX_TEXT_LEN: usize = 50 * 1024;

/// Maximum bytes of a text that are tokenized: text after [`MAX_TEXT_LEN`] is not searched, and a
/// character has at most four bytes.
const TOKENS_TEXT_BYTES: usize = 4 * MAX_TEXT_LEN;

/// Callbacks of the search for fragments.
pub struct Checks<'a> {
    /// Returns the weight of a word of the text for a multi-term query (a prefix, a pattern, a
    /// regular expression, a fuzzy query or a range); `None` when it does not match.
    pub likeness: &'a dyn Fn(&Query, &str) -> Option<f32>,
    /// Returns whether there is time for this many more steps. Without it there are no fragments.
    pub go_on: &'a dyn Fn(usize) -> bool,
}

/// Returns the best fragments of `text`, best first; none when no word of it matches.
///
/// Fields are ignored: words that matched in another field are marked, too.
pub fn fragments(
    text: &str,
    analyzer: &Analyzer,
    query: &Query,
    options: &Options,
    checks: &Checks<'_>,
) -> Vec<String> {
    let tokens = analyzer.tokens(&text[..text.floor_char_boundary(TOKENS_TEXT_BYTES)]);
    let mut wanted = QueryTerms {
        tokens: &tokens,
        words: HashMap::new(),
        checks,
    };
    wanted.collect(query, 1.0);
    if wanted.words.is_empty() {
        return Vec::new();
    }
    let words = wanted.words;
    let mut marker = Marker::new(text, options);
    for token in &tokens {
        let start = marker.units_until(token.start as usize);
        if start >= MAX_TEXT_LEN {
            break;
        }
        let word = words.get(&token.text);
        if !(checks.go_on)(1 + word.map_or(0, Word::places)) {
            return Vec::new();
        }
        let weight = word
            .filter(|word| word.is_at(token.position))
            .map_or(0.0, |word| word.weight);
        marker.add(token, weight);
    }
    marker.finish()
}

/// A word of the query.
struct Word {
    weight: f32,
    /// Where it counts: the positions of each phrase that it belongs to; everywhere when it is
    /// `None`.
    spans: Option<Vec<Rc<[Span]>>>,
}

impl Word {
    fn places(&self) -> usize {
        self.spans.as_ref().map_or(0, Vec::len)
    }

    fn is_at(&self, position: u32) -> bool {
        self.spans.as_ref().is_none_or(|spans| {
            spans.iter().any(|spans| {
                let next = spans.partition_point(|(first, _)| *first <= position);
                next > 0 && spans[next - 1].1 >= position
            })
        })
    }
}

/// The first position and the last.
type Span = (u32, u32);

/// Merges overlapping spans. They are in the order of their starts.
fn joined(spans: Vec<Span>) -> Rc<[Span]> {
    let mut all: Vec<Span> = vec![];
    for (first, last) in spans {
        match all.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            _ => all.push((first, last)),
        }
    }
    all.into()
}

struct QueryTerms<'a> {
    tokens: &'a [Token],
    words: HashMap<String, Word>,
    checks: &'a Checks<'a>,
}

impl QueryTerms<'_> {
    fn collect(&mut self, query: &Query, weight: f32) {
        match query {
            Query::Boolean { clauses, .. } => {
                for clause in clauses
                    .iter()
                    .filter(|clause| clause.occur != crate::query::Occur::MustNot)
                {
                    self.collect(&clause.query, 1.0);
                }
            }
            // A boost of parentheses has no effect, as in Lucene.
            Query::Boost { query, boost } => match **query {
                Query::Boolean { .. } => self.collect(query, 1.0),
                _ => self.collect(query, *boost),
            },
            Query::Term { text, .. } => {
                self.words.insert(
                    text.clone(),
                    Word {
                        weight,
                        spans: None,
                    },
                );
            }
            Query::Phrase { terms, slop, .. } => self.collect_phrase(terms, *slop, weight),
            Query::MatchAll
            | Query::MatchNone
            | Query::NumberRange { .. }
            | Query::Intervals { .. } => {}
            of_many_words => {
                for token in self.tokens {
                    if !(self.checks.go_on)(1) {
                        return;
                    }
                    if let Some(likeness) = (self.checks.likeness)(of_many_words, &token.text) {
                        self.words.insert(
                            token.text.clone(),
                            Word {
                                weight: weight * likeness,
                                spans: None,
                            },
                        );
                    }
                }
            }
        }
    }

    fn collect_phrase(&mut self, terms: &[PhraseTerm], slop: u32, weight: f32) {
        let largest_gap = terms
            .windows(2)
            .map(|pair| pair[1].position - pair[0].position)
            .max()
            .unwrap_or(0);
        let slop = if largest_gap > 1 {
            slop + largest_gap
        } else {
            slop
        };
        let spans = if slop == 0 {
            self.exact_spans(terms)
        } else {
            self.near_spans(terms, slop)
        };
        if spans.is_empty() {
            return;
        }
        let spans = joined(spans);
        for term in terms {
            let word = self.words.entry(term.text.clone()).or_insert_with(|| Word {
                weight,
                spans: Some(Vec::new()),
            });
            if let Some(known) = &mut word.spans
                && known.last().is_none_or(|last| !Rc::ptr_eq(last, &spans))
            {
                known.push(spans.clone());
            }
        }
    }

    /// Returns the spans where the words are consecutive.
    fn exact_spans(&self, terms: &[PhraseTerm]) -> Vec<Span> {
        let places: HashSet<(&str, u32)> = self
            .tokens
            .iter()
            .map(|token| (token.text.as_str(), token.position))
            .collect();
        let is_phrase = |first: u32| {
            terms
                .iter()
                .zip(first..)
                .take_while(|_| (self.checks.go_on)(1))
                .all(|(term, position)| places.contains(&(term.text.as_str(), position)))
        };
        let starts = self
            .tokens
            .iter()
            .filter(|token| token.text == terms[0].text && is_phrase(token.position));
        starts
            .map(|token| (token.position, token.position + terms.len() as u32 - 1))
            .collect()
    }

    /// Returns the spans where they are in any order, with a total gap of at most `slop` positions.
    /// The earliest word's position is advanced repeatedly.
    fn near_spans(&self, terms: &[PhraseTerm], slop: u32) -> Vec<Span> {
        let places = |text: &str| -> Vec<u32> {
            let tokens = self.tokens.iter();
            tokens
                .take_while(|_| (self.checks.go_on)(1))
                .filter(|token| token.text == text)
                .map(|token| token.position)
                .collect()
        };
        let lists: Vec<Vec<u32>> = terms.iter().map(|term| places(&term.text)).collect();
        let mut next = vec![0; lists.len()];
        let mut spans = Vec::new();
        loop {
            let current: Option<Vec<u32>> = lists
                .iter()
                .zip(&next)
                .map(|(list, next)| list.get(*next).copied())
                .collect();
            let Some(current) = current.filter(|c| (self.checks.go_on)(c.len())) else {
                return spans;
            };
            let (first, last) = (
                current.iter().min().copied().unwrap_or(0),
                current.iter().max().copied().unwrap_or(0),
            );
            if (last - first + 1).saturating_sub(terms.len() as u32) <= slop {
                spans.push((first, last));
            }
            let Some(at) = current.iter().position(|position| *position == first) else {
                return spans;
            };
            next[at] += 1;
        }
    }
}

struct Fragment {
    number: usize,
    /// Its part of the marked text.
    start: usize,
    end: usize,
    score: f32,
}

/// Tokens that overlap.
struct Group {
    end: u32,
    match_start: u32,
    match_end: u32,
    total: f32,
}

struct Marker<'a> {
    text: &'a str,
    options: &'a Options,
    size: usize,
    marked: String,
    /// How much of the text is in `marked`, in bytes.
    done: usize,
    group: Option<Group>,
    fragments: Vec<Fragment>,
    found: HashSet<String>,
    /// A place in the text in bytes and in UTF-16 units, so that units are counted once.
    counted: (usize, usize),
    next_cut: usize,
}

impl<'a> Marker<'a> {
    fn new(text: &'a str, options: &'a Options) -> Self {
        let size = if options.size == 0 {
            DEFAULT_SIZE
        } else {
            options.size
        };
        let first = Fragment {
            number: 0,
            start: 0,
            end: 0,
            score: 0.0,
        };
        Self {
            text,
            options,
            size,
            marked: String::with_capacity(text.len()),
            done: 0,
            group: None,
            fragments: vec![first],
            found: HashSet::new(),
            counted: (0, 0),
            next_cut: 1,
        }
    }

    /// Returns the UTF-16 units before `byte`.
    fn units_until(&mut self, byte: usize) -> usize {
        let units = |text: &str| text.chars().map(char::len_utf16).sum::<usize>();
        let (known, before) = self.counted;
        let all = match byte < known {
            true => before - units(&self.text[byte..known]),
            false => before + units(&self.text[known..byte]),
        };
        self.counted = (byte, all);
        all
    }

    fn add(&mut self, token: &Token, weight: f32) {
        if self
            .group
            .as_ref()
            .is_some_and(|group| token.start >= group.end)
        {
            self.flush_group();
            if self.units_until(token.end as usize) >= self.size.saturating_mul(self.next_cut) {
                self.next_cut += 1;
                self.begin_fragment();
            }
        }
        let last = self
            .fragments
            .last_mut()
            .expect("there is a fragment from the beginning on");
        if weight > 0.0 && self.found.insert(token.text.clone()) {
            last.score += weight;
        }
        match &mut self.group {
            None => {
                self.group = Some(Group {
                    end: token.end,
                    match_start: token.start,
                    match_end: token.end,
                    total: weight,
                })
            }
            Some(group) => {
                group.end = group.end.max(token.end);
                if weight > 0.0 {
                    let is_first = group.total == 0.0;
                    group.match_start = if is_first {
                        token.start
                    } else {
                        group.match_start.min(token.start)
                    };
                    group.match_end = if is_first {
                        token.end
                    } else {
                        group.match_end.max(token.end)
                    };
                    group.total += weight;
                }
            }
        }
    }

    fn flush_group(&mut self) {
        let Some(group) = self.group.take() else {
            return;
        };
        let (start, end) = (group.match_start as usize, group.match_end as usize);
        if start > self.done {
            self.marked.push_str(&self.text[self.done..start]);
        }
        let word = &self.text[start..end];
        if group.total > 0.0 {
            self.marked
                .extend([&self.options.pre_tag, word, &self.options.post_tag]);
        } else {
            self.marked.push_str(word);
        }
        self.done = self.done.max(end);
    }

    fn begin_fragment(&mut self) {
        let at = self.marked.len();
        let number = self.fragments.len();
        if let Some(last) = self.fragments.last_mut() {
            last.end = at;
        }
        self.fragments.push(Fragment {
            number,
            start: at,
            end: at,
            score: 0.0,
        });
        self.found.clear();
    }

    fn finish(mut self) -> Vec<String> {
        self.flush_group();
        if self.done < self.text.len() && self.units_until(self.text.len()) <= MAX_TEXT_LEN {
            self.marked.push_str(&self.text[self.done..]);
        }
        let end = self.marked.len();
        if let Some(last) = self.fragments.last_mut() {
            last.end = end;
        }
        let mut best = std::mem::take(&mut self.fragments);
        best.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.number.cmp(&b.number)));
        best.truncate(self.options.number.max(1));
        let merged = merge_neighbours(best.into_iter().map(Some).collect());
        let texts = merged.into_iter().filter(|fragment| fragment.score > 0.0);
        texts
            .map(|fragment| self.marked[fragment.start..fragment.end].to_owned())
            .collect()
    }
}

/// Makes one of fragments that follow each other, at the place of the better one.
fn merge_neighbours(mut fragments: Vec<Option<Fragment>>) -> Vec<Fragment> {
    // Fragments do not overlap, so that each is followed by one at most.
    let mut by_start: HashMap<usize, usize> = fragments
        .iter()
        .enumerate()
        .filter_map(|(at, fragment)| fragment.as_ref().map(|fragment| (fragment.start, at)))
        .collect();
    let mut at = 0;
    while at < fragments.len() {
        let next = fragments[at]
            .as_ref()
            .and_then(|fragment| by_start.get(&fragment.end).copied())
            .filter(|next| *next != at);
        let Some(next) = next else {
            at += 1;
            continue;
        };
        let (Some(first), Some(second)) = (fragments[at].take(), fragments[next].take()) else {
            at += 1;
            continue;
        };
        let place = if first.score > second.score { at } else { next };
        let merged = Fragment {
            end: second.end,
            score: first.score.max(second.score),
            ..first
        };
        by_start.remove(&second.start);
        by_start.insert(merged.start, place);
        fragments[place] = Some(merged);
        // Earlier ones may be followed by it now.
        at = at.min(place);
    }
    fragments.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::{ParseOptions, parse};
    use crate::{FieldAnalyzers, Flavour};
    use serde_json::json;

    fn found(text: &str, query: &str, options: &Options) -> Vec<String> {
        let analyzers = FieldAnalyzers::parse(Flavour::Clouseau, Some(&json!("english"))).unwrap();
        let query = parse(query, &ParseOptions::new(Flavour::Clouseau, &analyzers)).unwrap();
        let likeness = |query: &Query, word: &str| {
            matches!(query, Query::Prefix { prefix, .. } if word.starts_with(prefix.as_str()))
                .then_some(1.0)
        };
        let checks = Checks {
            likeness: &likeness,
            go_on: &|_| true,
        };
        fragments(text, analyzers.of("default"), &query, options, &checks)
    }

    #[test]
    fn nothing_is_marked_when_there_is_no_time_for_more() {
        let analyzers = FieldAnalyzers::parse(Flavour::Clouseau, None).unwrap();
        let words = "a ".repeat(20_000);
        let phrase = format!("\"{}\"", "a ".repeat(8_000));
        for query in [phrase.clone(), phrase + "~9", "a".into(), "a*".into()] {
            let query = parse(&query, &ParseOptions::new(Flavour::Clouseau, &analyzers)).unwrap();
            let left = std::cell::Cell::new(10_000_usize);
            let asked = std::cell::Cell::new(0_usize);
            let checks = Checks {
                likeness: &|_, _| Some(1.0),
                go_on: &|steps| {
                    asked.set(asked.get() + 1);
                    left.set(left.get().saturating_sub(steps));
                    left.get() > 0
                },
            };
            let analyzer = analyzers.of("default");
            let cut = fragments(&words, analyzer, &query, &Options::default(), &checks);
            assert!(cut.is_empty(), "{query:?}");
            assert!(asked.get() < 100_000, "{query:?}: {}", asked.get());
        }
    }

    #[test]
    fn words_behind_the_longest_text_are_not_looked_at() {
        let text = "x ".repeat(4 * MAX_TEXT_LEN) + "fox";
        assert!(found(&text, "fox", &Options::default()).is_empty());
    }

    #[test]
    fn words_are_marked_as_they_stand_in_the_text() {
        let text = "The foxes were running.";
        assert_eq!(
            found(text, "fox run*", &Options::default()),
            ["The <em>foxes</em> were <em>running</em>."]
        );
        assert!(found(text, "dog", &Options::default()).is_empty());
    }

    #[test]
    fn words_of_phrases_are_marked_in_phrases_only() {
        let text = "quick dogs, quick brown foxes";
        assert_eq!(
            found(text, "\"quick brown\"", &Options::default()),
            ["quick dogs, <em>quick</em> <em>brown</em> foxes"]
        );
    }

    #[test]
    fn the_best_fragments_come_first() {
        let text = "one fox and some more words. nothing at all is here, not one. a dog and a fox are in here";
        let options = Options {
            size: 30,
            number: 2,
            ..Options::default()
        };
        let best = found(text, "fox dog", &options);
        assert_eq!(best.len(), 2, "{best:?}");
        assert!(best[0].contains("<em>dog</em>"), "{best:?}");
    }
}
