//! Lucene 4.6's classic parser, with Clouseau's changes for numbers.
//!
//! The default field is `default`, the default operator OR. An unquoted number is a number, in any
//! field; a range is numeric when both its ends are.

mod lexer;

use super::field;
use super::number::{parse_double, parse_float};
use super::scan::{LexError, unescape};
use super::{
    Clause, DEFAULT_FIELD, Error, MAX_CLAUSES, MAX_DEPTH, MAX_FIELD_LEN, Occur, ParseOptions, Query,
};
use lexer::{Kind, Lexeme};
use std::ops::Bound;

/// The maximum and default number of edits of a fuzzy query.
const MAX_EDITS: f32 = 2.0;

/// Lucene's reason.
const TOO_MANY_CLAUSES: &str = "too many boolean clauses";

pub(super) fn parse(text: &str, options: &ParseOptions<'_>) -> Result<Query, Error> {
    let lexemes = lexer::lexemes(text).map_err(|error| match error {
        LexError::Invalid(at) => lexical_error(text, at),
        LexError::TooMany => classic_error(text, TOO_MANY_CLAUSES),
    })?;
    let mut parser = Parser {
        text,
        lexemes,
        next: 0,
        depth: 0,
        leaves: 0,
        words_left: MAX_CLAUSES,
        options,
    };
    let query = parser.query(DEFAULT_FIELD)?;
    if parser.kind() != Kind::End {
        return Err(parser.unexpected());
    }
    // All words were stop words.
    Ok(query.unwrap_or(Query::MatchNone))
}

fn classic_error(query: &str, reason: impl Into<String>) -> Error {
    Error::Classic {
        query: query.to_owned(),
        reason: reason.into(),
    }
}

/// Lines and columns are counted as JavaCC's scanners do, both from 1.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    (
        line,
        before
            .rsplit('\n')
            .next()
            .map_or(0, |last| last.encode_utf16().count())
            + 1,
    )
}

fn lexical_error(text: &str, at: usize) -> Error {
    let (line, column) = place(text, at);
    let encountered = text[at..]
        .chars()
        .next()
        .map_or_else(|| "<EOF>".to_owned(), |character| format!("{character:?}"));
    classic_error(
        text,
        format!("Lexical error at line {line}, column {column}.  Encountered: {encountered}"),
    )
}

struct Parser<'a> {
    text: &'a str,
    lexemes: Vec<Lexeme<'a>>,
    next: usize,
    depth: usize,
    /// Number of words, phrases, patterns and ranges so far.
    leaves: usize,
    /// Words that the query may still have.
    words_left: usize,
    options: &'a ParseOptions<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Modifier {
    None,
    Required,
    Prohibited,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Conjunction {
    None,
    And,
    Or,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Lexeme<'a> {
        self.lexemes[self.next]
    }

    fn kind(&self) -> Kind {
        self.peek().kind
    }

    /// Returns the next word. The last, which is the end, stays.
    fn take(&mut self) -> Lexeme<'a> {
        let lexeme = self.peek();
        self.next = (self.next + 1).min(self.lexemes.len() - 1);
        lexeme
    }

    fn take_if(&mut self, kind: Kind) -> Option<Lexeme<'a>> {
        (self.kind() == kind).then(|| self.take())
    }

    fn error(&self, reason: impl Into<String>) -> Error {
        classic_error(self.text, reason)
    }

    fn unexpected(&self) -> Error {
        let Lexeme { kind, image, at } = self.peek();
        let (line, column) = place(self.text, at);
        let image = if kind == Kind::End { "<EOF>" } else { image };
        self.error(format!(
            "Encountered \"{image}\" at line {line}, column {}.",
            column - 1
        ))
    }

    fn unescaped(&self, text: &str) -> Result<String, Error> {
        unescape(text).map_err(|reason| self.error(reason))
    }

    /// Clauses; `None` when analyzers left nothing of them.
    fn query(&mut self, field: &str) -> Result<Option<Query>, Error> {
        let mut clauses: Vec<Clause> = Vec::new();
        let modifier = self.modifier();
        let query = self.clause(field)?;
        let is_first_plain = modifier == Modifier::None && query.is_some();
        self.add(&mut clauses, Conjunction::None, modifier, query)?;
        while self.begins_clause() {
            let conjunction = match self.kind() {
                Kind::And => Conjunction::And,
                Kind::Or => Conjunction::Or,
                _ => Conjunction::None,
            };
            if conjunction != Conjunction::None {
                self.take();
            }
            let modifier = self.modifier();
            let query = self.clause(field)?;
            self.add(&mut clauses, conjunction, modifier, query)?;
        }
        Ok(match clauses.len() {
            0 => None,
            1 if is_first_plain => clauses.pop().map(|clause| clause.query),
            _ => Some(Query::Boolean {
                clauses,
                minimum_should_match: 0,
            }),
        })
    }

    fn begins_clause(&self) -> bool {
        !matches!(
            self.kind(),
            Kind::End
                | Kind::Close
                | Kind::Colon
                | Kind::Caret
                | Kind::Tilde
                | Kind::To
                | Kind::RangeClose { .. }
                | Kind::RangeQuoted
                | Kind::RangeGoop
        )
    }

    fn modifier(&mut self) -> Modifier {
        let modifier = match self.kind() {
            Kind::Plus => Modifier::Required,
            Kind::Minus | Kind::Not => Modifier::Prohibited,
            _ => return Modifier::None,
        };
        self.take();
        modifier
    }

    /// Adds a clause by the rules of Lucene: AND makes the clause before it required, too.
    fn add(
        &self,
        clauses: &mut Vec<Clause>,
        conjunction: Conjunction,
        modifier: Modifier,
        query: Option<Query>,
    ) -> Result<(), Error> {
        if conjunction == Conjunction::And
            && let Some(before) = clauses.last_mut()
            && before.occur != Occur::MustNot
        {
            before.occur = Occur::Must;
        }
        let Some(query) = query else { return Ok(()) };
        if clauses.len() == MAX_CLAUSES {
            return Err(self.error(TOO_MANY_CLAUSES));
        }
        let occur = match modifier {
            Modifier::Prohibited => Occur::MustNot,
            Modifier::Required => Occur::Must,
            Modifier::None if conjunction == Conjunction::And => Occur::Must,
            Modifier::None => Occur::Should,
        };
        clauses.push(Clause { occur, query });
        Ok(())
    }

    /// Returns a term or a group, in the field that it may name.
    fn clause(&mut self, field: &str) -> Result<Option<Query>, Error> {
        let names_field = self
            .lexemes
            .get(self.next + 1)
            .is_some_and(|next| next.kind == Kind::Colon);
        let named = match self.peek() {
            Lexeme {
                kind: Kind::Term,
                image,
                ..
            } if names_field => Some(self.unescaped(image)?),
            Lexeme {
                kind: Kind::Star, ..
            } if names_field => Some("*".to_owned()),
            _ => None,
        };
        if named.is_some() {
            self.take();
            self.take();
        }
        let field = named.as_deref().unwrap_or(field);
        if field.len() > MAX_FIELD_LEN {
            return Err(Error::LongField);
        }
        if self.take_if(Kind::Open).is_none() {
            return self.term(field);
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        let query = self.query(field)?;
        self.depth -= 1;
        if self.take_if(Kind::Close).is_none() {
            return Err(self.unexpected());
        }
        let boost = self.boost()?;
        Ok(weighed(query, boost))
    }

    /// `^2`.
    fn boost(&mut self) -> Result<Option<f32>, Error> {
        if self.take_if(Kind::Caret).is_none() {
            return Ok(None);
        }
        match self.take_if(Kind::Number) {
            Some(number) => Ok(number.image.parse().ok()),
            None => Err(self.unexpected()),
        }
    }

    fn term(&mut self, field: &str) -> Result<Option<Query>, Error> {
        let query = match self.kind() {
            Kind::RangeOpen { is_inclusive } => self.range(field, is_inclusive),
            Kind::Quoted => self.quoted(field),
            Kind::Term
            | Kind::Star
            | Kind::Prefix
            | Kind::Wild
            | Kind::Regexp
            | Kind::Number
            | Kind::BareOperator => self.bare(field),
            _ => Err(self.unexpected()),
        }?;
        // Stop words are none.
        self.leaves += usize::from(query.is_some());
        if self.leaves > MAX_CLAUSES {
            return Err(self.error(TOO_MANY_CLAUSES));
        }
        Ok(query)
    }

    fn bare(&mut self, field: &str) -> Result<Option<Query>, Error> {
        let mut term = self.take();
        if term.kind == Kind::BareOperator {
            term.image = &term.image[..1];
        }
        let mut tilde = self.take_if(Kind::Tilde);
        let boost = self.boost()?;
        if boost.is_some() {
            tilde = self.take_if(Kind::Tilde).or(tilde);
        }
        let text = self.unescaped(term.image)?;
        let normalize = |term: &str| self.options.analyzers.of(field).normalize(term);
        let field_name = field.to_owned();
        let query = match term.kind {
            Kind::Star | Kind::Wild => Some(self.wildcard(field, term.image)?),
            Kind::Prefix => {
                let prefix = self.unescaped(&term.image[..term.image.len() - 1])?;
                Some(Query::Prefix {
                    field: field_name,
                    prefix: normalize(&prefix),
                })
            }
            Kind::Regexp => Some(Query::Regexp {
                field: field_name,
                pattern: normalize(&term.image[1..term.image.len() - 1]),
            }),
            _ => match tilde {
                Some(tilde) => Some(self.fuzzy(field, &text, tilde)?),
                None => match parse_double(&text) {
                    Some(number) => Some(Query::NumberRange {
                        field: field_name,
                        lower: Bound::Included(number),
                        upper: Bound::Included(number),
                    }),
                    None => self.analyzed(field, &text, false, 0)?,
                },
            },
        };
        Ok(weighed(query, boost))
    }

    fn analyzed(
        &mut self,
        field: &str,
        text: &str,
        is_quoted: bool,
        slop: u32,
    ) -> Result<Option<Query>, Error> {
        field::query(
            self.options,
            field,
            text,
            is_quoted,
            slop,
            &mut self.words_left,
        )
        .map_err(|error| match error {
            Error::Stopped => error,
            _ => self.error(TOO_MANY_CLAUSES),
        })
    }

    fn wildcard(&self, field: &str, image: &str) -> Result<Query, Error> {
        if field == "*" && image == "*" {
            return Ok(Query::MatchAll);
        }
        if image.starts_with(['*', '?']) {
            return Err(self.error("'*' or '?' not allowed as first character in WildcardQuery"));
        }
        Ok(Query::Wildcard {
            field: field.to_owned(),
            pattern: self.options.analyzers.of(field).normalize(image),
        })
    }

    fn fuzzy(&self, field: &str, text: &str, tilde: Lexeme<'_>) -> Result<Query, Error> {
        let similarity = parse_float(&tilde.image[1..]).unwrap_or(MAX_EDITS);
        if similarity < 0.0 {
            return Err(
                self.error("Minimum similarity for a FuzzyQuery has to be between 0.0f and 1.0f !")
            );
        }
        if similarity >= 1.0 && similarity.fract() != 0.0 {
            return Err(self.error("Fractional edit distances are not allowed!"));
        }
        let text = self.options.analyzers.of(field).normalize(text);
        let edits = if similarity >= 1.0 {
            similarity
        } else if similarity == 0.0 {
            0.0
        } else {
            // In double precision, as in Java.
            ((1.0 - f64::from(similarity)) * text.chars().count() as f64) as f32
        };
        Ok(Query::Fuzzy {
            field: field.to_owned(),
            text,
            max_edits: edits.min(MAX_EDITS) as u8,
        })
    }

    fn quoted(&mut self, field: &str) -> Result<Option<Query>, Error> {
        let image = self.take().image;
        let slop = self
            .take_if(Kind::Tilde)
            .and_then(|tilde| parse_float(&tilde.image[1..]))
            .unwrap_or(0.0);
        let boost = self.boost()?;
        let text = self.unescaped(&image[1..image.len() - 1])?;
        let query = self.analyzed(field, &text, true, slop as u32)?;
        Ok(weighed(query, boost))
    }

    fn range(&mut self, field: &str, includes_lower: bool) -> Result<Option<Query>, Error> {
        self.take();
        let lower = self.range_end()?;
        self.take_if(Kind::To);
        let upper = self.range_end()?;
        let Kind::RangeClose {
            is_inclusive: includes_upper,
        } = self.kind()
        else {
            return Err(self.unexpected());
        };
        self.take();
        let boost = self.boost()?;
        let number =
            |end: &Option<String>, open: f64| end.as_deref().map_or(Some(open), parse_double);
        let query = match (
            number(&lower, f64::NEG_INFINITY),
            number(&upper, f64::INFINITY),
        ) {
            (Some(lower), Some(upper)) => Query::NumberRange {
                field: field.to_owned(),
                lower: bound(Some(lower), includes_lower),
                upper: bound(Some(upper), includes_upper),
            },
            _ => {
                let analyzer = self.options.analyzers.of(field);
                let text = |end: Option<String>| end.map(|end| analyzer.normalize(&end));
                Query::Range {
                    field: field.to_owned(),
                    lower: bound(text(lower), includes_lower),
                    upper: bound(text(upper), includes_upper),
                }
            }
        };
        Ok(weighed(Some(query), boost))
    }

    /// One end of a range; `None` for `*`.
    fn range_end(&mut self) -> Result<Option<String>, Error> {
        let image = match self.peek() {
            Lexeme {
                kind: Kind::RangeGoop,
                image: "*",
                ..
            } => None,
            Lexeme {
                kind: Kind::RangeGoop,
                image,
                ..
            } => Some(image),
            Lexeme {
                kind: Kind::RangeQuoted,
                image,
                ..
            } => Some(&image[1..image.len() - 1]),
            _ => return Err(self.unexpected()),
        };
        self.take();
        image.map(|image| self.unescaped(image)).transpose()
    }
}

fn bound<T>(end: Option<T>, is_inclusive: bool) -> Bound<T> {
    match end {
        None => Bound::Unbounded,
        Some(end) if is_inclusive => Bound::Included(end),
        Some(end) => Bound::Excluded(end),
    }
}

fn weighed(query: Option<Query>, boost: Option<f32>) -> Option<Query> {
    match boost {
        Some(boost) => query.map(|query| query.boosted(boost)),
        None => query,
    }
}

#[cfg(test)]
mod tests {
    use crate::query::{ParseOptions, parse};
    use crate::{FieldAnalyzers, Flavour};

    fn shown(text: &str) -> String {
        let analyzers = FieldAnalyzers::parse(Flavour::Clouseau, None).unwrap();
        match parse(text, &ParseOptions::new(Flavour::Clouseau, &analyzers)) {
            Ok(query) => query.to_lucene_string(Flavour::Clouseau),
            Err(error) => format!("! {error}"),
        }
    }

    #[test]
    fn and_makes_its_neighbours_required() {
        assert_eq!(
            shown("honey OR quick AND red"),
            "default:honey +default:quick +default:red"
        );
        assert_eq!(shown("a:(x y)^2 -b:z"), "((a:x a:y)^2.0) -b:z");
    }

    #[test]
    fn unquoted_numbers_are_numbers() {
        assert_eq!(shown("n:5"), "n:[5.0 TO 5.0]");
        assert_eq!(shown("n:\"5\""), "n:5");
        assert_eq!(shown("n:[1 TO *}"), "n:[1.0 TO Infinity}");
        assert_eq!(shown("n:[a TO B]"), "n:[a TO b]");
    }

    #[test]
    fn leading_wildcards_are_refused() {
        for text in ["*x", "?x", "f:*", "*"] {
            assert!(shown(text).starts_with("! "), "{text}");
        }
        assert_eq!(shown("*:*"), "*:*");
        assert_eq!(shown("Ab*"), "default:ab*");
    }

    #[test]
    fn what_is_no_query_is_refused() {
        for text in [
            "", "(", "a)", "\"a", "a^", "a^ 2", "[a TO", "AND", "a AND", "+", "/x",
        ] {
            assert!(
                shown(text).starts_with("! Cannot parse"),
                "{text}: {}",
                shown(text)
            );
        }
    }

    #[test]
    fn deep_queries_are_refused_and_long_ones_too() {
        assert!(shown(&"(".repeat(10_000)).starts_with("! the query is nested deeper"));
        assert!(shown(&"(".repeat(100_000)).contains("too many boolean clauses"));
        assert!(shown(&"x ".repeat(1025)).contains("too many boolean clauses"));
        assert_eq!(shown(&"x ".repeat(1024)).matches("default:x").count(), 1024);
    }

    #[test]
    fn words_of_phrases_and_groups_are_counted_together() {
        let phrase = |words: usize| format!("\"{}\"", "ab ".repeat(words));
        assert!(!shown(&phrase(1024)).starts_with("! "));
        assert!(!shown(&format!("{0} {0}", phrase(512))).starts_with("! "));
        let groups = format!("({0}) ({0})", "x* ".repeat(513));
        for text in [
            phrase(1025),
            format!("{0} {0}", phrase(513)),
            "\u{4e2d}".repeat(300_000),
            groups,
        ] {
            assert!(shown(&text).ends_with("too many boolean clauses"));
        }
        // Stop words are not among them.
        assert_eq!(shown(&format!("{}fox", "the ".repeat(2000))), shown("fox"));
    }

    #[test]
    fn long_names_of_fields_are_not_repeated_in_clauses() {
        let grouped = |length: usize| shown(&format!("{}:(x y)", "f".repeat(length)));
        assert!(!grouped(4096).starts_with("! "));
        assert!(grouped(4097).starts_with("! the query has a field name of more than"));
    }
}
