//! Which of the accepted formats an input is, and the documents in it.

use std::io::BufRead;

use crate::collector::Collector;
use crate::document::{self, IdSource, Item, Malformed};
use crate::scanner::{InputError, Position, Scanner};

/// How ids are found, and which objects may be a dump.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules<'a> {
    pub(crate) id_field: Option<&'a str>,
    pub(crate) id_from_key: bool,
    /// The id of a document that is alone in its file.
    pub(crate) file_id: Option<&'a str>,
    /// Whether every top-level object may be a dump (pages of one), not only the first.
    pub(crate) pages: bool,
}

/// Members of a dump that come before or after its list.
const DUMP_MEMBERS: &[&[u8]] = &[
    br#""total_rows""#,
    br#""offset""#,
    br#""update_seq""#,
    br#""new_edits""#,
    br#""last_seq""#,
    br#""pending""#,
];

/// The kind of a list's elements.
#[derive(Debug, Clone, Copy)]
enum Elements {
    Documents,
    Rows,
}

/// Reads the input to its end, or until the collector stops.
pub(crate) fn documents<R: BufRead>(
    scanner: Scanner<R>,
    rules: Rules<'_>,
    collector: &mut dyn Collector,
) -> Result<(), InputError> {
    let mut reader = Reader {
        scanner,
        rules,
        collector,
        value: Vec::new(),
    };
    let mut first = true;
    while let Some(byte) = reader.scanner.peek()? {
        let wanted = match byte {
            b'[' => reader.list(Elements::Documents)?,
            b'{' if rules.id_from_key => reader.members()?,
            b'{' => reader.object(first)?,
            byte => {
                return Err(reader.scanner.syntax(format!(
                    "expected a JSON object or array (for CSV: --format csv), found '{}'",
                    byte.escape_ascii()
                )));
            }
        };
        if !wanted {
            break;
        }
        first = false;
    }
    Ok(())
}

struct Reader<'a, R> {
    scanner: Scanner<R>,
    rules: Rules<'a>,
    collector: &'a mut dyn Collector,
    /// The value in hand.
    value: Vec<u8>,
}

impl<'a, R: BufRead> Reader<'a, R> {
    /// Reads the elements of an array, one at a time.
    fn list(&mut self, elements: Elements) -> Result<bool, InputError> {
        self.scanner.expect(b'[')?;
        if self.scanner.peek()? == Some(b']') {
            return self.scanner.expect(b']').map(|()| true);
        }
        loop {
            self.value.clear();
            let position = self.scanner.value(&mut self.value)?;
            let item = match elements {
                Elements::Documents => document::document(&self.value, position, self.ids()),
                Elements::Rows => document::row(&self.value, position),
            };
            if !self.pass(item, position)? {
                return Ok(false);
            }
            if !self.scanner.another(b']')? {
                return Ok(true);
            }
        }
    }

    /// Reads the members of an object whose values are the documents and whose names are the ids.
    fn members(&mut self) -> Result<bool, InputError> {
        self.scanner.expect(b'{')?;
        if self.scanner.peek()? == Some(b'}') {
            return self.scanner.expect(b'}').map(|()| true);
        }
        loop {
            let id = self.name()?;
            self.value.clear();
            let position = self.scanner.value(&mut self.value)?;
            let item = document::document(&self.value, position, IdSource::Given(&id));
            if !self.pass(item, position)? {
                return Ok(false);
            }
            if !self.scanner.another(b'}')? {
                return Ok(true);
            }
        }
    }

    /// Reads a member's name and its colon.
    fn name(&mut self) -> Result<String, InputError> {
        let mut raw = Vec::new();
        let position = self.scanner.value(&mut raw)?;
        let name = serde_json::from_slice(&raw).map_err(|_| {
            self.scanner
                .syntax_at("expected the name of a member".to_owned(), position)
        })?;
        self.scanner.expect(b':')?;
        Ok(name)
    }

    /// Reads a dump, or a document.
    fn object(&mut self, first: bool) -> Result<bool, InputError> {
        let position = self.scanner.position();
        self.scanner.expect(b'{')?;
        self.value.clear();
        self.value.push(b'{');
        if first || self.rules.pages {
            while self.scanner.peek()? == Some(b'"') {
                let name_at = self.value.len();
                self.scanner.value(&mut self.value)?;
                let name = self.value[name_at..].to_vec();
                self.scanner.expect(b':')?;
                self.value.push(b':');
                let opening = self.scanner.peek()?;
                if let Some(elements) = dump_list(&name, opening) {
                    return self.dump(elements, position);
                }
                if !DUMP_MEMBERS.contains(&name.as_slice()) || matches!(opening, Some(b'{' | b'['))
                {
                    break;
                }
                self.scanner.value(&mut self.value)?;
                if self.scanner.peek()? != Some(b',') {
                    break;
                }
                self.scanner.expect(b',')?;
                self.value.push(b',');
            }
        }
        self.scanner.rest(&mut self.value, position)?;
        let ids = self.object_ids(first)?;
        let item = document::document(&self.value, position, ids);
        self.pass(item, position)
    }

    /// Reads the list of a dump, and the rest of the object after it.
    fn dump(&mut self, elements: Elements, position: Position) -> Result<bool, InputError> {
        let wanted = self.list(elements)?;
        if wanted {
            self.value.clear();
            self.scanner.rest(&mut self.value, position)?;
        }
        Ok(wanted)
    }

    /// An object that is alone in its file has the file's id.
    fn object_ids(&mut self, first: bool) -> Result<IdSource<'a>, InputError> {
        let alone = first && self.rules.file_id.is_some() && self.scanner.peek()?.is_none();
        Ok(match self.rules.file_id.filter(|_| alone) {
            Some(id) if self.rules.id_field.is_none() => IdSource::Given(id),
            _ => self.ids(),
        })
    }

    fn ids(&self) -> IdSource<'a> {
        self.rules
            .id_field
            .map_or(IdSource::Server, IdSource::Member)
    }

    fn pass(&mut self, item: Result<Item, Malformed>, start: Position) -> Result<bool, InputError> {
        match item {
            Ok(item) => Ok(self.collector.collect(item)),
            Err(malformed) => {
                let before = &self.value[..malformed.at.min(self.value.len())];
                let position = Position {
                    offset: start.offset + before.len() as u64,
                    line: start.line + memchr::memchr_iter(b'\n', before).count() as u64,
                };
                Err(self.scanner.syntax_at(malformed.problem, position))
            }
        }
    }
}

/// Returns whether this member is the list of a dump.
fn dump_list(name: &[u8], opening: Option<u8>) -> Option<Elements> {
    match (name, opening) {
        (br#""rows""# | br#""results""#, Some(b'[')) => Some(Elements::Rows),
        (br#""docs""#, Some(b'[')) => Some(Elements::Documents),
        _ => None,
    }
}
