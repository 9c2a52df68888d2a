//! Queries as Lucene's `toString` writes them.

use super::number::{double_to_string, float_to_string};
use super::{Clause, Occur, PhraseTerm, Query};
use crate::Flavour;
use std::fmt::Write;
use std::ops::Bound;

pub(super) fn lucene_string(query: &Query, flavour: Flavour) -> String {
    let mut out = String::new();
    write(query, flavour, &mut out);
    out
}

#[expect(
    clippy::too_many_lines,
    reason = "one line or two for each kind of query"
)]
fn write(query: &Query, flavour: Flavour, out: &mut String) {
    // Writing into a string does not fail.
    let _ = match query {
        Query::Term { field, text } => write!(out, "{field}:{text}"),
        Query::Phrase { field, terms, slop } => {
            let _ = write!(out, "{field}:\"");
            phrase(terms, out);
            let _ = write!(out, "\"");
            if *slop == 0 {
                Ok(())
            } else {
                write!(out, "~{slop}")
            }
        }
        Query::Prefix { field, prefix } => write!(out, "{field}:{prefix}*"),
        Query::Wildcard { field, pattern } => write!(out, "{field}:{pattern}"),
        Query::Regexp { field, pattern } => write!(out, "{field}:/{pattern}/"),
        Query::Fuzzy {
            field,
            text,
            max_edits,
        } => write!(out, "{field}:{text}~{max_edits}"),
        Query::Range {
            field,
            lower,
            upper,
        } => {
            let text = |text: &String| {
                if text == "*" {
                    r"\*".to_owned()
                } else {
                    text.clone()
                }
            };
            range(
                field,
                lower.as_ref().map(text),
                upper.as_ref().map(text),
                out,
            )
        }
        Query::NumberRange {
            field,
            lower,
            upper,
        } => {
            let next = |bound: Bound<f64>, step: fn(f64) -> f64| match (flavour, bound) {
                // Lucene 9's points know inclusive bounds only.
                (Flavour::Nouveau, Bound::Excluded(number)) => Bound::Included(step(number)),
                (_, bound) => bound,
            };
            let (lower, upper) = (next(*lower, f64::next_up), next(*upper, f64::next_down));
            range(
                field,
                lower.map(double_to_string),
                upper.map(double_to_string),
                out,
            )
        }
        Query::Boolean {
            clauses,
            minimum_should_match,
        } => {
            let in_parentheses = *minimum_should_match > 0;
            out.push_str(if in_parentheses { "(" } else { "" });
            boolean(clauses, flavour, out);
            if in_parentheses {
                write!(out, ")~{minimum_should_match}")
            } else {
                Ok(())
            }
        }
        Query::Boost { query, boost } => {
            let in_parentheses =
                flavour == Flavour::Nouveau || matches!(**query, Query::Boolean { .. });
            out.push_str(if in_parentheses { "(" } else { "" });
            write(query, flavour, out);
            out.push_str(if in_parentheses { ")" } else { "" });
            write!(out, "^{}", float_to_string(*boost))
        }
        Query::MatchAll => write!(out, "*:*"),
        Query::Intervals { field, interval } => {
            let _ = write!(out, "{field}:");
            super::interval::write(interval, out)
        }
        Query::MatchNone if flavour == Flavour::Nouveau => write!(out, "MatchNoDocsQuery(\"\")"),
        Query::MatchNone => Ok(()),
    };
}

fn boolean(clauses: &[Clause], flavour: Flavour, out: &mut String) {
    for (at, clause) in clauses.iter().enumerate() {
        out.push_str(if at > 0 { " " } else { "" });
        out.push_str(match clause.occur {
            Occur::Must => "+",
            Occur::Should => "",
            Occur::MustNot => "-",
        });
        let is_boolean = match &clause.query {
            Query::Boolean { .. } => true,
            // In Lucene 4.6 the weight is a property of the query, which is still a boolean one.
            Query::Boost { query, .. } => {
                flavour == Flavour::Clouseau && matches!(**query, Query::Boolean { .. })
            }
            _ => false,
        };
        out.push_str(if is_boolean { "(" } else { "" });
        write(&clause.query, flavour, out);
        out.push_str(if is_boolean { ")" } else { "" });
    }
}

fn phrase(terms: &[PhraseTerm], out: &mut String) {
    // Positions are counted from the start of the analyzed text, so that a phrase may start with a
    // gap.
    let mut next = 0;
    let mut at = 0;
    while at < terms.len() {
        let position = terms[at].position;
        while next < position {
            out.push_str("? ");
            next += 1;
        }
        let same = terms[at..]
            .iter()
            .take_while(|term| term.position == position)
            .count();
        let words: Vec<&str> = terms[at..at + same]
            .iter()
            .map(|term| term.text.as_str())
            .collect();
        if same > 1 {
            let _ = write!(out, "({})", words.join(" "));
        } else {
            out.push_str(words[0]);
        }
        at += same;
        next += 1;
        out.push_str(if at < terms.len() { " " } else { "" });
    }
}

fn range(
    field: &str,
    lower: Bound<String>,
    upper: Bound<String>,
    out: &mut String,
) -> std::fmt::Result {
    let (opening, lower) = match lower {
        Bound::Included(text) => ('[', text),
        Bound::Excluded(text) => ('{', text),
        Bound::Unbounded => ('[', "*".to_owned()),
    };
    let (closing, upper) = match upper {
        Bound::Included(text) => (']', text),
        Bound::Excluded(text) => ('}', text),
        Bound::Unbounded => (']', "*".to_owned()),
    };
    write!(out, "{field}:{opening}{lower} TO {upper}{closing}")
}
