//! Analyzers: from a text to its words.

use crate::checkpoints::Checkpoints;
use crate::filter::{Bigrams, Filter};
use crate::grams::EdgeGrams;
use crate::tokenizer::{Raw, Tokenizer};
use crate::{Error, names, stop};
use serde_json::Value;
use std::sync::Arc;

/// Which of CouchDB's two full-text searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// `_search`: Clouseau, with Lucene 4.6.
    Clouseau,
    /// `_nouveau`: Nouveau, with Lucene 9.
    Nouveau,
}

/// A word of a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Token {
    /// The indexed word: in lower case and stemmed, as the analyzer has it.
    pub text: String,
    /// Its position among the words, from 0. Dropped words leave a gap. Prefixes of a word have its
    /// position.
    pub position: u32,
    /// Start in the text, in bytes.
    pub start: u32,
    /// End in the text, in bytes.
    pub end: u32,
}

/// A tokenizer and its filters.
#[derive(Debug)]
pub(crate) struct Chain {
    tokenizer: Tokenizer,
    filters: Vec<Filter>,
    /// Whether neighbouring characters of Chinese, Japanese and Korean become pairs, and the
    /// filters after that.
    pairs: Option<Vec<Filter>>,
    normalizing: Vec<Filter>,
    /// Additional terms of a word.
    grams: Option<EdgeGrams>,
}

impl Chain {
    pub(crate) fn new(tokenizer: Tokenizer, filters: Vec<Filter>) -> Self {
        Self {
            tokenizer,
            filters,
            pairs: None,
            normalizing: Vec::new(),
            grams: None,
        }
    }

    pub(crate) fn in_pairs(mut self, after: Vec<Filter>) -> Self {
        self.pairs = Some(after);
        self
    }

    pub(crate) fn normalized(mut self, filters: Vec<Filter>) -> Self {
        self.normalizing = filters;
        self
    }
}

/// Cuts texts into words. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Analyzer {
    flavour: Flavour,
    chain: Arc<Chain>,
}

impl Analyzer {
    /// Parses the definition in a design document: a name (`"english"`), or an object with `name`
    /// and options: for Clouseau `stopwords` instead of the language's own, for `edge_ngram`
    /// `min_gram` and `max_gram`. Clouseau's `perfield` belongs to [`crate::FieldAnalyzers`].
    ///
    /// # Errors
    ///
    /// A missing or unknown name, or invalid prefix lengths.
    pub fn parse(flavour: Flavour, definition: &Value) -> Result<Self, Error> {
        let name = match definition {
            Value::String(name) => name,
            Value::Object(object) => object
                .get("name")
                .and_then(Value::as_str)
                .ok_or(Error::NoName)?,
            _ => return Err(Error::NoName),
        };
        if flavour == Flavour::Clouseau && name == "perfield" {
            return Err(Error::PerField);
        }
        let stop_words = match (
            flavour,
            definition.get("stopwords").and_then(Value::as_array),
        ) {
            (Flavour::Clouseau, Some(words)) => {
                Some(stop::words(words.iter().filter_map(Value::as_str)))
            }
            _ => None,
        };
        let mut chain = names::chain(flavour, name, stop_words)
            .ok_or_else(|| Error::UnknownAnalyzer(name.to_owned()))?;
        if name == names::EDGE_NGRAM {
            chain.grams = Some(EdgeGrams::parse(definition)?);
        }
        Ok(Self {
            flavour,
            chain: Arc::new(chain),
        })
    }

    /// Returns the analyzer of that name.
    ///
    /// # Errors
    ///
    /// The name is not known.
    pub fn named(flavour: Flavour, name: &str) -> Result<Self, Error> {
        Self::parse(flavour, &Value::String(name.to_owned()))
    }

    /// Returns the names that [`Self::named`] takes, in order.
    #[must_use]
    pub fn names(flavour: Flavour) -> Vec<&'static str> {
        let mut all = names::NAMES.to_vec();
        match flavour {
            Flavour::Clouseau => all.extend(names::CLOUSEAU_NAMES),
            Flavour::Nouveau => all.push("portugese"),
        }
        all.sort_unstable();
        all
    }

    /// Returns the words of `text` as they are indexed.
    #[must_use]
    pub fn tokens(&self, text: &str) -> Vec<Token> {
        let mut tokens = Vec::new();
        self.visit(text, &mut |token| tokens.push(token.clone()));
        tokens
    }

    /// Returns the words of a query's text, at most the first `words_max`. Where prefixes are
    /// indexed, a query for `fo` finds words that start with it; a query for `fox` does not find
    /// all words that start with `fo`.
    ///
    /// `go_on` is called every few milliseconds; `None` once it returns false.
    #[must_use]
    pub fn query_tokens(
        &self,
        text: &str,
        words_max: usize,
        go_on: &dyn Fn() -> bool,
    ) -> Option<Vec<Token>> {
        let mut tokens = Vec::new();
        let is_all = self.words(text, go_on, &mut |token| {
            if tokens.len() < words_max {
                tokens.push(token.clone());
            }
        });
        is_all.then_some(tokens)
    }

    /// Calls `visit` with each indexed word of `text`, in order. The same token is reused.
    ///
    /// Time is proportional to the text. Offsets of texts beyond 4 GiB stay at the largest one.
    pub fn visit(&self, text: &str, visit: &mut dyn FnMut(&Token)) {
        self.visit_while(text, &|| true, visit);
    }

    /// Calls `visit` as [`Self::visit`] does, and `go_on` every few milliseconds. Stops once that
    /// returns false; returns whether all words were visited.
    pub fn visit_while(
        &self,
        text: &str,
        go_on: &dyn Fn() -> bool,
        visit: &mut dyn FnMut(&Token),
    ) -> bool {
        match self.chain.grams {
            None => self.words(text, go_on, visit),
            Some(grams) => {
                let mut gram = Token::default();
                self.words(text, go_on, &mut |word| grams.each(word, &mut gram, visit))
            }
        }
    }

    /// Returns whether all words were visited.
    fn words(&self, text: &str, go_on: &dyn Fn() -> bool, visit: &mut dyn FnMut(&Token)) -> bool {
        let mut checkpoints = Checkpoints::new(go_on);
        let mut out = Out {
            token: Token::default(),
            pending: 0,
            is_first: true,
        };
        let Chain {
            tokenizer,
            filters,
            pairs,
            ..
        } = &*self.chain;
        match pairs {
            None => tokenizer.each(text, &mut checkpoints, &mut |raw| {
                let Raw {
                    text,
                    start,
                    end,
                    kind,
                    increment,
                } = raw;
                out.pending += increment;
                out.token.text.clear();
                out.token.text.push_str(text);
                if filters
                    .iter()
                    .all(|filter| filter.apply(&mut out.token.text, kind))
                {
                    out.emit(start, end, visit);
                }
            }),
            Some(after) => {
                let mut bigrams = Bigrams::default();
                let mut word = String::new();
                let mut emit = |piece: crate::filter::Piece| {
                    out.pending += piece.increment;
                    out.token.text = piece.text;
                    if after.iter().all(|filter| {
                        filter.apply(&mut out.token.text, crate::tokenizer::Kind::Word)
                    }) {
                        out.emit(piece.start, piece.end, visit);
                    }
                };
                tokenizer.each(text, &mut checkpoints, &mut |raw| {
                    word.clear();
                    word.push_str(raw.text);
                    if filters
                        .iter()
                        .all(|filter| filter.apply(&mut word, raw.kind))
                    {
                        bigrams.push(&raw, &word, &mut emit);
                    }
                });
                bigrams.flush(&mut emit);
            }
        }
        !checkpoints.is_over()
    }

    /// Normalizes the terms of wildcards, prefixes, ranges and fuzzy queries, which are not whole
    /// words: lower case and the like, never stemmed.
    ///
    /// Clouseau puts them into lower case as a whole, unless the analyzer is `keyword`; Nouveau
    /// asks the analyzer.
    #[must_use]
    pub fn normalize(&self, term: &str) -> String {
        match self.flavour {
            Flavour::Clouseau if self.is_keyword() => term.to_owned(),
            Flavour::Clouseau => term.to_lowercase(),
            Flavour::Nouveau => {
                let mut term = term.to_owned();
                for filter in &self.chain.normalizing {
                    filter.apply(&mut term, crate::tokenizer::Kind::Word);
                }
                term
            }
        }
    }

    /// Returns whether a text is one unchanged word.
    #[must_use]
    pub fn is_keyword(&self) -> bool {
        self.chain.tokenizer == Tokenizer::Keyword
    }
}

struct Out {
    token: Token,
    /// Positions since the last word that was kept.
    pending: u32,
    is_first: bool,
}

impl Out {
    fn emit(&mut self, start: usize, end: usize, visit: &mut dyn FnMut(&Token)) {
        let steps = if std::mem::take(&mut self.is_first) {
            self.pending.saturating_sub(1)
        } else {
            self.pending
        };
        self.token.position = self.token.position.saturating_add(steps);
        self.pending = 0;
        self.token.start = u32::try_from(start).unwrap_or(u32::MAX);
        self.token.end = u32::try_from(end).unwrap_or(u32::MAX);
        visit(&self.token);
    }
}
