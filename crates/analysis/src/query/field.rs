//! From the text of a term or a phrase to a query, by the field's analyzer.

use super::{Clause, Error, Occur, ParseOptions, PhraseTerm, Query};
use crate::Token;

/// Returns the query of Lucene's `QueryBuilder` for a text: none, a word, a phrase when it is
/// quoted, else words of which one is enough. Subtracts its words from those that the whole query
/// may still have.
pub(super) fn query(
    options: &ParseOptions<'_>,
    field: &str,
    text: &str,
    is_quoted: bool,
    slop: u32,
    words_left: &mut usize,
) -> Result<Option<Query>, Error> {
    let mut tokens = words(options, field, text, words_left)?;
    if tokens.len() <= 1 {
        return Ok(tokens.pop().map(|token| Query::Term {
            field: field.to_owned(),
            text: token.text,
        }));
    }
    if is_quoted {
        let terms = tokens
            .into_iter()
            .map(|Token { text, position, .. }| PhraseTerm { text, position })
            .collect();
        return Ok(Some(Query::Phrase {
            field: field.to_owned(),
            terms,
            slop,
        }));
    }
    let term = |token: Token| Query::Term {
        field: field.to_owned(),
        text: token.text,
    };
    let clauses = tokens
        .into_iter()
        .map(|token| Clause {
            occur: Occur::Should,
            query: term(token),
        })
        .collect();
    Ok(Some(Query::Boolean {
        clauses,
        minimum_should_match: 0,
    }))
}

/// Returns the words of a text, and subtracts them from those that the whole query may still have.
pub(super) fn words(
    options: &ParseOptions<'_>,
    field: &str,
    text: &str,
    words_left: &mut usize,
) -> Result<Vec<Token>, Error> {
    let analyzer = options.analyzers.of(field);
    let tokens = analyzer
        .query_tokens(text, *words_left + 1, options.go_on)
        .ok_or(Error::Stopped)?;
    *words_left = words_left
        .checked_sub(tokens.len())
        .ok_or(Error::TooManyClauses)?;
    Ok(tokens)
}
