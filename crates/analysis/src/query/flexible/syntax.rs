//! From words to a tree: the syntax of a query text.
//!
//! AND binds tighter than OR, and clauses that merely follow each other are the loosest. In the end
//! that matters little: parts without parentheses become clauses of one query, see the module
//! above.

use super::lexer::{self, Kind, Lexeme};
use crate::query::scan::{LexError, unescape_marked};
use crate::query::{Error, Interval, MAX_CLAUSES, MAX_DEPTH, MAX_FIELD_LEN, Relation};

/// A text whose characters carry whether they were escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) characters: String,
    /// Whether there is an unescaped `*` or `?`.
    pub(super) is_wild: bool,
}

impl Text {
    /// Returns whether it was a bare `*`: an open end of a range.
    pub(super) fn is_open(&self) -> bool {
        self.is_wild && self.characters == "*"
    }
}

/// A part of a query text.
#[derive(Debug)]
pub(super) enum QueryNode {
    Term {
        field: String,
        text: Text,
    },
    Quoted {
        field: String,
        text: Text,
        slop: u32,
    },
    Fuzzy {
        field: String,
        text: Text,
        similarity: f32,
    },
    Regexp {
        field: String,
        pattern: String,
    },
    Range {
        field: String,
        lower: Text,
        upper: Text,
        includes_lower: bool,
        includes_upper: bool,
    },
    Group(Box<QueryNode>),
    /// Clauses; where `is_and`, they are required.
    Clauses {
        is_and: bool,
        clauses: Vec<QueryNode>,
    },
    Modified {
        is_required: bool,
        node: Box<QueryNode>,
    },
    Boost {
        node: Box<QueryNode>,
        boost: f32,
    },
    MinShouldMatch {
        node: Box<QueryNode>,
        least: u32,
    },
    Intervals {
        field: String,
        interval: Spoken,
    },
}

/// An interval before its words are analyzed.
#[derive(Debug)]
pub(super) enum Spoken {
    Text(String),
    Wildcard(String),
    Fuzzy {
        text: String,
        max_edits: u8,
    },
    Many {
        make: fn(Vec<Interval>) -> Interval,
        parts: Vec<Spoken>,
    },
    Numbered {
        make: fn(u32, Vec<Interval>) -> Interval,
        number: u32,
        parts: Vec<Spoken>,
    },
    Extend {
        part: Box<Spoken>,
        before: u32,
        after: u32,
    },
    Related {
        relation: Relation,
        parts: Box<[Spoken; 2]>,
    },
}

pub(super) fn parse(text: &str, default_field: &str) -> Result<QueryNode, Error> {
    let lexemes = lexer::lexemes(text).map_err(|lex_error| {
        let LexError::Invalid(at) = lex_error else {
            return Error::TooManyClauses;
        };
        let encountered = text[at..].chars().next().unwrap_or_default();
        error(
            text,
            format!(
                "Lexical error at character {}.  Encountered: {encountered:?}",
                text[..at].chars().count() + 1
            ),
        )
    })?;
    let mut parser = Parser {
        text,
        lexemes,
        next: 0,
        depth: 0,
        leaves: 0,
    };
    let node = parser.query(default_field)?;
    if parser.kind() != Kind::End {
        return Err(parser.unexpected());
    }
    Ok(node)
}

fn error(query: &str, reason: impl Into<String>) -> Error {
    Error::Flexible {
        query: query.to_owned(),
        reason: reason.into(),
    }
}

struct Parser<'a> {
    text: &'a str,
    lexemes: Vec<Lexeme<'a>>,
    next: usize,
    depth: usize,
    /// Number of leaves (words, ranges and the like) so far.
    leaves: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Lexeme<'a> {
        self.lexemes[self.next]
    }

    fn kind(&self) -> Kind {
        self.peek().kind
    }

    fn kind_after(&self) -> Kind {
        self.lexemes
            .get(self.next + 1)
            .map_or(Kind::End, |lexeme| lexeme.kind)
    }

    fn take(&mut self) -> Lexeme<'a> {
        let lexeme = self.peek();
        self.next = (self.next + 1).min(self.lexemes.len() - 1);
        lexeme
    }

    fn take_if(&mut self, kind: Kind) -> Option<Lexeme<'a>> {
        (self.kind() == kind).then(|| self.take())
    }

    fn expect(&mut self, kind: Kind) -> Result<Lexeme<'a>, Error> {
        self.take_if(kind).ok_or_else(|| self.unexpected())
    }

    fn unexpected(&self) -> Error {
        let Lexeme { kind, image, at } = self.peek();
        let image = if kind == Kind::End { "<EOF>" } else { image };
        error(
            self.text,
            format!(
                "Encountered \"{image}\" at character {}.",
                self.text[..at].chars().count() + 1
            ),
        )
    }

    fn unescaped(&self, text: &str) -> Result<Text, Error> {
        let (characters, is_wild) =
            unescape_marked(text).map_err(|reason| error(self.text, reason))?;
        Ok(Text {
            characters,
            is_wild,
        })
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        let found = inner(self)?;
        self.depth -= 1;
        Ok(found)
    }

    fn query(&mut self, field: &str) -> Result<QueryNode, Error> {
        let mut clauses = vec![self.disjunction(field)?];
        while self.begins_clause() {
            clauses.push(self.disjunction(field)?);
        }
        // A lone negation stays a clause, since it would be lost as a query.
        let is_negation = matches!(
            clauses[..],
            [QueryNode::Modified {
                is_required: false,
                ..
            }]
        );
        Ok(if is_negation {
            QueryNode::Clauses {
                is_and: false,
                clauses,
            }
        } else {
            one_or_clauses(clauses, false)
        })
    }

    fn begins_clause(&self) -> bool {
        use Kind::{Function, Minus, Not, Number, Open, Plus, Quoted, RangeOpen, Regexp, Term};
        matches!(
            self.kind(),
            Not | Function
                | Plus
                | Minus
                | Quoted
                | Number
                | Term
                | Regexp
                | RangeOpen { .. }
                | Open
        )
    }

    fn disjunction(&mut self, field: &str) -> Result<QueryNode, Error> {
        let mut clauses = vec![self.conjunction(field)?];
        while self.take_if(Kind::Or).is_some() {
            clauses.push(self.conjunction(field)?);
        }
        Ok(one_or_clauses(clauses, false))
    }

    fn conjunction(&mut self, field: &str) -> Result<QueryNode, Error> {
        let mut clauses = vec![self.modified(field)?];
        while self.take_if(Kind::And).is_some() {
            clauses.push(self.modified(field)?);
        }
        Ok(one_or_clauses(clauses, true))
    }

    fn modified(&mut self, field: &str) -> Result<QueryNode, Error> {
        let is_required = match self.kind() {
            Kind::Plus => true,
            Kind::Minus | Kind::Not => false,
            _ => return self.clause(field),
        };
        self.take();
        Ok(QueryNode::Modified {
            is_required,
            node: Box::new(self.clause(field)?),
        })
    }

    /// Counts a leaf in this field.
    fn leaf(&mut self, field: &str) -> Result<(), Error> {
        self.leaves += 1;
        if self.leaves > MAX_CLAUSES {
            return Err(Error::TooManyClauses);
        }
        if field.len() > MAX_FIELD_LEN {
            return Err(Error::LongField);
        }
        Ok(())
    }

    fn clause(&mut self, field: &str) -> Result<QueryNode, Error> {
        let mut named = None;
        if self.kind() == Kind::Term {
            match self.kind_after() {
                Kind::Less | Kind::LessOrEqual | Kind::More | Kind::MoreOrEqual => {
                    return self.comparison();
                }
                Kind::Colon | Kind::Equal => {
                    let name = self.take().image;
                    self.take();
                    named = Some(self.unescaped(name)?.characters);
                }
                _ => {}
            }
        }
        let field = named.as_deref().unwrap_or(field);
        match self.kind() {
            Kind::Open => self.group(field),
            Kind::Function => {
                self.leaf(field)?;
                Ok(QueryNode::Intervals {
                    field: field.to_owned(),
                    interval: self.interval()?,
                })
            }
            _ => self.term(field),
        }
    }

    /// `(…)^2@3`.
    fn group(&mut self, field: &str) -> Result<QueryNode, Error> {
        self.take();
        let node = self.deeper(|parser| parser.query(field))?;
        self.expect(Kind::Close)?;
        let node = self.boosted(node)?;
        let group = QueryNode::Group(Box::new(node));
        if self.take_if(Kind::At).is_none() {
            return Ok(group);
        }
        let least = self.integer()?;
        Ok(QueryNode::MinShouldMatch {
            node: Box::new(group),
            least,
        })
    }

    fn boosted(&mut self, node: QueryNode) -> Result<QueryNode, Error> {
        if self.take_if(Kind::Caret).is_none() {
            return Ok(node);
        }
        let boost: f32 = self
            .expect(Kind::Number)?
            .image
            .parse()
            .unwrap_or(f32::INFINITY);
        if !boost.is_finite() {
            return Err(Error::NotAllowed(format!(
                "boost must be a positive float, got {boost}"
            )));
        }
        Ok(QueryNode::Boost {
            node: Box::new(node),
            boost,
        })
    }

    /// Returns a whole number.
    fn integer(&mut self) -> Result<u32, Error> {
        let image = self.expect(Kind::Number)?.image;
        image
            .parse::<i32>()
            .ok()
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| error(self.text, format!("For input string: \"{image}\"")))
    }

    /// `field>5`.
    fn comparison(&mut self) -> Result<QueryNode, Error> {
        let field = self.take().image;
        let field = self.unescaped(field)?.characters;
        self.leaf(&field)?;
        let operator = self.take().kind;
        let image = match self.kind() {
            Kind::Term | Kind::Number => self.take().image,
            Kind::Quoted => unquoted(self.take().image),
            _ => return Err(self.unexpected()),
        };
        let end = self.unescaped(image)?;
        let open = Text {
            characters: "*".to_owned(),
            is_wild: true,
        };
        Ok(match operator {
            Kind::Less | Kind::LessOrEqual => QueryNode::Range {
                field,
                lower: open,
                upper: end,
                includes_lower: true,
                includes_upper: operator == Kind::LessOrEqual,
            },
            _ => QueryNode::Range {
                field,
                lower: end,
                upper: open,
                includes_lower: operator == Kind::MoreOrEqual,
                includes_upper: true,
            },
        })
    }

    fn term(&mut self, field: &str) -> Result<QueryNode, Error> {
        self.leaf(field)?;
        let field = field.to_owned();
        let node = match self.kind() {
            Kind::Regexp => {
                let image = self.take().image;
                QueryNode::Regexp {
                    field,
                    pattern: image[1..image.len() - 1].to_owned(),
                }
            }
            Kind::Term | Kind::Number => {
                let text = self.take().image;
                let text = self.unescaped(text)?;
                match self.take_if(Kind::Tilde) {
                    None => QueryNode::Term { field, text },
                    Some(_) => QueryNode::Fuzzy {
                        field,
                        text,
                        similarity: self.similarity()?,
                    },
                }
            }
            Kind::RangeOpen { is_inclusive } => self.range(field, is_inclusive)?,
            Kind::Quoted => {
                let image = self.take().image;
                let text = self.unescaped(unquoted(image))?;
                let slop = if self.take_if(Kind::Tilde).is_some() {
                    self.integer()?
                } else {
                    0
                };
                QueryNode::Quoted { field, text, slop }
            }
            _ => return Err(self.unexpected()),
        };
        self.boosted(node)
    }

    fn similarity(&mut self) -> Result<f32, Error> {
        let Some(number) = self.take_if(Kind::Number) else {
            return Ok(2.0);
        };
        let similarity: f32 = number.image.parse().unwrap_or(f32::INFINITY);
        if similarity >= 1.0 && similarity.fract() != 0.0 {
            return Err(error(
                self.text,
                "Fractional edit distances are not allowed.",
            ));
        }
        Ok(similarity)
    }

    fn range(&mut self, field: String, includes_lower: bool) -> Result<QueryNode, Error> {
        self.take();
        let lower = self.range_end()?;
        self.expect(Kind::To)?;
        let upper = self.range_end()?;
        let Kind::RangeClose {
            is_inclusive: includes_upper,
        } = self.kind()
        else {
            return Err(self.unexpected());
        };
        self.take();
        Ok(QueryNode::Range {
            field,
            lower,
            upper,
            includes_lower,
            includes_upper,
        })
    }

    fn range_end(&mut self) -> Result<Text, Error> {
        let image = match self.kind() {
            Kind::RangeGoop | Kind::To => self.take().image,
            Kind::RangeQuoted => unquoted(self.take().image),
            _ => return Err(self.unexpected()),
        };
        self.unescaped(image)
    }

    /// `fn:name(…)`, a word, or words in quotation marks.
    fn interval(&mut self) -> Result<Spoken, Error> {
        match self.kind() {
            Kind::Function => {}
            Kind::Quoted => return Ok(Spoken::Text(unquoted(self.take().image).to_owned())),
            Kind::Term | Kind::Number => return Ok(Spoken::Text(self.take().image.to_owned())),
            _ => return Err(self.unexpected()),
        }
        self.take();
        let name = self.expect(Kind::FunctionName)?.image;
        self.expect(Kind::Open)?;
        let spoken = self.deeper(|parser| parser.function(name))?;
        self.expect(Kind::Close)?;
        Ok(spoken)
    }

    fn function(&mut self, name: &str) -> Result<Spoken, Error> {
        let relation = match name {
            "before" => Relation::Before,
            "after" => Relation::After,
            "containing" => Relation::Containing,
            "notContaining" | "notcontaining" => Relation::NotContaining,
            "containedBy" | "containedby" => Relation::ContainedBy,
            "notContainedBy" | "notcontainedby" => Relation::NotContainedBy,
            "overlapping" => Relation::Overlapping,
            "nonOverlapping" | "nonoverlapping" => Relation::NonOverlapping,
            _ => return self.other_function(name),
        };
        let parts = Box::new([self.interval()?, self.interval()?]);
        Ok(Spoken::Related { relation, parts })
    }

    #[expect(clippy::too_many_lines, reason = "a table of functions")]
    fn other_function(&mut self, name: &str) -> Result<Spoken, Error> {
        Ok(match name {
            "ordered" => Spoken::Many {
                make: Interval::Ordered,
                parts: self.intervals()?,
            },
            "unordered" => Spoken::Many {
                make: Interval::Unordered,
                parts: self.intervals()?,
            },
            "or" => Spoken::Many {
                make: Interval::Or,
                parts: self.intervals()?,
            },
            "phrase" => Spoken::Many {
                make: Interval::Phrase,
                parts: self.intervals()?,
            },
            "unorderedNoOverlaps" | "unorderednooverlaps" => Spoken::Many {
                make: no_overlaps,
                parts: vec![self.interval()?, self.interval()?],
            },
            "atLeast" | "atleast" => Spoken::Numbered {
                make: Interval::AtLeast,
                number: self.integer()?,
                parts: self.intervals()?,
            },
            "maxGaps" | "maxgaps" => Spoken::Numbered {
                make: max_gaps,
                number: self.integer()?,
                parts: vec![self.interval()?],
            },
            "maxWidth" | "maxwidth" => Spoken::Numbered {
                make: max_width,
                number: self.integer()?,
                parts: vec![self.interval()?],
            },
            "within" | "notWithin" | "notwithin" => {
                let interval = self.interval()?;
                let distance = self.integer()?;
                let relation = if name == "within" {
                    Relation::Within(distance)
                } else {
                    Relation::NotWithin(distance)
                };
                Spoken::Related {
                    relation,
                    parts: Box::new([interval, self.interval()?]),
                }
            }
            "extend" => Spoken::Extend {
                part: Box::new(self.interval()?),
                before: self.integer()?,
                after: self.integer()?,
            },
            "wildcard" => {
                let pattern = self.word()?;
                // The number of words that a pattern may stand for is the engine's.
                self.take_if(Kind::Number);
                Spoken::Wildcard(pattern)
            }
            "fuzzyTerm" | "fuzzyterm" => {
                let text = self.word()?;
                let max_edits = if self.kind() == Kind::Number {
                    self.integer()?
                } else {
                    2
                };
                self.take_if(Kind::Number);
                Spoken::Fuzzy {
                    text,
                    max_edits: max_edits.min(2) as u8,
                }
            }
            _ => return Err(error(self.text, format!("unknown function \"{name}\""))),
        })
    }

    fn word(&mut self) -> Result<String, Error> {
        match self.kind() {
            Kind::Term | Kind::Number => Ok(self.take().image.to_owned()),
            Kind::Quoted => Ok(unquoted(self.take().image).to_owned()),
            _ => Err(self.unexpected()),
        }
    }

    /// One or more.
    fn intervals(&mut self) -> Result<Vec<Spoken>, Error> {
        let mut all = vec![self.interval()?];
        while self.kind() != Kind::Close {
            all.push(self.interval()?);
        }
        Ok(all)
    }
}

fn only(mut parts: Vec<Interval>) -> Box<Interval> {
    Box::new(parts.pop().unwrap_or(Interval::Nothing))
}

fn max_gaps(most: u32, parts: Vec<Interval>) -> Interval {
    Interval::MaxGaps(most, only(parts))
}

fn max_width(most: u32, parts: Vec<Interval>) -> Interval {
    Interval::MaxWidth(most, only(parts))
}

fn no_overlaps(parts: Vec<Interval>) -> Interval {
    let mut parts = parts.into_iter();
    let mut next = || parts.next().unwrap_or(Interval::Nothing);
    Interval::UnorderedNoOverlaps(Box::new([next(), next()]))
}

fn one_or_clauses(mut clauses: Vec<QueryNode>, is_and: bool) -> QueryNode {
    match clauses.len() {
        1 => clauses.remove(0),
        _ => QueryNode::Clauses { is_and, clauses },
    }
}

fn unquoted(image: &str) -> &str {
    &image[1..image.len() - 1]
}
