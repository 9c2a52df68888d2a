//! Intervals: words in some order and distance, as Nouveau's `fn:` functions ask for them.
//!
//! An interval is a run of places in a document's field. What the functions mean is told in Lucene's
//! `org.apache.lucene.queries.intervals.Intervals`, whose names these are.

use std::fmt::Write;

/// What is asked of a field's words.
#[derive(Debug, Clone, PartialEq)]
pub enum Interval {
    /// A word, analyzed.
    Term(String),
    /// Nothing: the analyzer left no word.
    Nothing,
    /// Words that match a pattern of `*` and `?`.
    Wildcard(String),
    /// Words that are at most so many edits away.
    Fuzzy {
        /// The word.
        text: String,
        /// 0, 1 or 2.
        max_edits: u8,
    },
    /// One behind the other without a gap.
    Phrase(Vec<Interval>),
    /// One behind the other.
    Ordered(Vec<Interval>),
    /// In any order; they may overlap.
    Unordered(Vec<Interval>),
    /// In any order, without overlapping.
    UnorderedNoOverlaps(Box<[Interval; 2]>),
    /// Any of them.
    Or(Vec<Interval>),
    /// At least so many of them.
    AtLeast(u32, Vec<Interval>),
    /// No wider than so many places.
    MaxWidth(u32, Box<Interval>),
    /// With at most so many places between its parts.
    MaxGaps(u32, Box<Interval>),
    /// Made wider.
    Extend {
        /// What is made wider.
        interval: Box<Interval>,
        /// Places before it.
        before: u32,
        /// Places behind it.
        after: u32,
    },
    /// Those of one that stand in a relation to the other.
    Related {
        /// Which relation.
        relation: Relation,
        /// Those that are found.
        interval: Box<Interval>,
        /// What they are compared with.
        other: Box<Interval>,
    },
}

/// How an interval stands to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// Before it.
    Before,
    /// Behind it.
    After,
    /// Around it.
    Containing,
    /// Not around it.
    NotContaining,
    /// Inside of it.
    ContainedBy,
    /// Not inside of it.
    NotContainedBy,
    /// At most so many places from it.
    Within(u32),
    /// Further than so many places from it.
    NotWithin(u32),
    /// Sharing a place with it.
    Overlapping,
    /// Sharing none with it.
    NonOverlapping,
}

/// Writes the function that asks for `interval`. This is not Lucene's `toString` of an interval, which shows how it is
/// found instead.
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
