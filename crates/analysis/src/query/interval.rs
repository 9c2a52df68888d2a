//! Intervals: words in some order and distance, as in Nouveau's `fn:` functions.
//!
//! An interval is a run of positions in a document's field. The semantics of the functions are
//! those of Lucene's `org.apache.lucene.queries.intervals.Intervals`, whose names these are.

use std::fmt::Write;

/// An interval query of a field's words.
#[derive(Debug, Clone, PartialEq)]
pub enum Interval {
    /// A word, analyzed.
    Term(String),
    /// Nothing: the analyzer left no word.
    Nothing,
    /// Words that match a pattern of `*` and `?`.
    Wildcard(String),
    /// Words within this edit distance.
    Fuzzy {
        /// The word.
        text: String,
        /// 0, 1 or 2.
        max_edits: u8,
    },
    /// Consecutive, without a gap.
    Phrase(Vec<Interval>),
    /// In this order.
    Ordered(Vec<Interval>),
    /// In any order; they may overlap.
    Unordered(Vec<Interval>),
    /// In any order, without overlapping.
    UnorderedNoOverlaps(Box<[Interval; 2]>),
    /// Any of them.
    Or(Vec<Interval>),
    /// At least this number of them.
    AtLeast(u32, Vec<Interval>),
    /// At most this many positions wide.
    MaxWidth(u32, Box<Interval>),
    /// With at most this many positions between its parts.
    MaxGaps(u32, Box<Interval>),
    /// Extended.
    Extend {
        /// The interval to extend.
        interval: Box<Interval>,
        /// Places before it.
        before: u32,
        /// Positions after it.
        after: u32,
    },
    /// Intervals in a relation to the other.
    Related {
        /// Which relation.
        relation: Relation,
        /// The intervals to find.
        interval: Box<Interval>,
        /// The intervals to compare with.
        other: Box<Interval>,
    },
}

/// The relation of an interval to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// Before it.
    Before,
    /// After it.
    After,
    /// Around it.
    Containing,
    /// Not around it.
    NotContaining,
    /// Inside of it.
    ContainedBy,
    /// Not inside of it.
    NotContainedBy,
    /// At most this many positions from it.
    Within(u32),
    /// More than this many positions from it.
    NotWithin(u32),
    /// Sharing a place with it.
    Overlapping,
    /// Sharing none with it.
    NonOverlapping,
}

/// Writes the function of `interval`. This is not Lucene's `toString` of an interval, which shows
/// its execution instead.
pub(super) fn write(interval: &Interval, out: &mut String) -> std::fmt::Result {
    let list = |name: &str, parts: &[Interval], out: &mut String| {
        write!(out, "fn:{name}(")?;
        for (at, part) in parts.iter().enumerate() {
            out.push_str(if at > 0 { " " } else { "" });
            write(part, out)?;
        }
        write!(out, ")")
    };
    match interval {
        Interval::Term(text) => write!(out, "{text}"),
        Interval::Nothing => write!(out, "\"\""),
        Interval::Wildcard(pattern) => write!(out, "fn:wildcard({pattern})"),
        Interval::Fuzzy { text, max_edits } => write!(out, "fn:fuzzyTerm({text} {max_edits})"),
        Interval::Phrase(parts) => list("phrase", parts, out),
        Interval::Ordered(parts) => list("ordered", parts, out),
        Interval::Unordered(parts) => list("unordered", parts, out),
        Interval::UnorderedNoOverlaps(parts) => list("unorderedNoOverlaps", &parts[..], out),
        Interval::Or(parts) => list("or", parts, out),
        Interval::AtLeast(least, parts) => list(&format!("atLeast({least} "), parts, out),
        Interval::MaxWidth(most, part) => number("maxwidth", *most, part, out),
        Interval::MaxGaps(most, part) => number("maxgaps", *most, part, out),
        Interval::Extend {
            interval,
            before,
            after,
        } => {
            write!(out, "fn:extend(")?;
            write(interval, out)?;
            write!(out, " {before} {after})")
        }
        Interval::Related {
            relation,
            interval,
            other,
        } => {
            write!(out, "fn:{relation:?}(")?;
            write(interval, out)?;
            out.push(' ');
            write(other, out)?;
            write!(out, ")")
        }
    }
}

fn number(name: &str, number: u32, part: &Interval, out: &mut String) -> std::fmt::Result {
    write!(out, "fn:{name}({number} ")?;
    write(part, out)?;
    write!(out, ")")
}
