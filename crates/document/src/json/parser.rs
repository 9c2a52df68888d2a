//! The single pass over JSON text: checks it, writes its normal form and its Erlang term.

use super::number::number;
use super::string::{find_special, unescape};
use super::{DEPTH_MAX, DocError, INPUT_LENGTH_MAX, write_escaped};
use crate::term;

/// Objects with more members than this are searched for duplicates by sorting.
const PAIRWISE_MAX: usize = 16;

/// Parses values from `input`, appending normal text to `out` (if `TEXT`) and terms to `term` (if
/// `TERM`).
///
/// Without `TEXT` the input must be in normal form, so that duplicate members need not be looked
/// for.
pub(super) struct Parser<'a, const TEXT: bool, const TERM: bool> {
    pub(super) input: &'a [u8],
    pub(super) at: usize,
    pub(super) out: Vec<u8>,
    pub(super) term: Vec<u8>,
    /// Errors of values that are valid JSON.
    pub(super) deferred: Option<DocError>,
    frames: Vec<Frame>,
    /// The members of all open objects, if `TEXT`.
    members: Vec<OpenMember>,
    unescaped: Vec<u8>,
    fingerprints: Vec<u64>,
    cuts: Cuts,
}

/// Ranges to be cut out of the text and of the term, since a later member of the same name came.
/// This is done at the end, for all objects together: doing it for each would move the contents of
/// nested objects again and again.
#[derive(Default)]
struct Cuts {
    out: Vec<(usize, usize)>,
    term: Vec<(usize, usize)>,
}

/// See [`Parser::cut_mark`].
#[derive(Default)]
pub(super) struct CutMark {
    out: usize,
    term: usize,
}

/// An open object or array.
struct Frame {
    is_object: bool,
    /// Members or elements so far.
    count: u32,
    /// Where its term starts.
    term_start: usize,
    /// Where its members start in `members`.
    members_start: usize,
}

/// A member of an open object.
#[derive(Clone, Copy)]
struct OpenMember {
    /// Where its text starts: at the comma for all but the first.
    out_start: usize,
    /// Where its name's text starts and ends, without the quotes.
    name: (usize, usize),
    term_start: usize,
    /// Names with different fingerprints are different.
    fingerprint: u64,
}

/// The positions of the parts of the current member.
pub(super) struct MemberStart {
    pub(super) out: usize,
    pub(super) term: usize,
    /// The name's text, without the quotes, and the name in the term.
    pub(super) name_out: (usize, usize),
    pub(super) name_term: (usize, usize),
}

impl<'a, const TEXT: bool, const TERM: bool> Parser<'a, TEXT, TERM> {
    pub(super) fn new(input: &'a [u8]) -> Result<Self, DocError> {
        if input.len() > INPUT_LENGTH_MAX {
            return Err(DocError::TooLong);
        }
        std::str::from_utf8(input).map_err(|_| DocError::InvalidJson)?;
        Ok(Self {
            input,
            at: 0,
            out: Vec::new(),
            term: Vec::new(),
            deferred: None,
            frames: Vec::new(),
            members: Vec::new(),
            unescaped: Vec::new(),
            fingerprints: Vec::new(),
            cuts: Cuts::default(),
        })
    }

    /// Reserves space for the output of `length` bytes of ordinary JSON.
    pub(super) fn reserve(&mut self, length: usize) {
        if TEXT {
            self.out.reserve(length + 16);
        }
        if TERM {
            self.term.reserve(length + length / 2 + 64);
        }
    }

    /// Checks that nothing follows, and returns the errors of values.
    pub(super) fn finish(&mut self) -> Result<(), DocError> {
        self.cut_since(&CutMark::default());
        match self.peek() {
            None => self.deferred.take().map_or(Ok(()), Err),
            Some(_) => Err(DocError::InvalidJson),
        }
    }

    /// Returns the next byte that is not white space.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        loop {
            match self.input.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                next => return next.copied(),
            }
        }
    }

    /// Consumes `byte`, which must come next.
    #[inline]
    pub(super) fn expect(&mut self, byte: u8) -> Result<(), DocError> {
        if self.peek() != Some(byte) {
            return Err(DocError::InvalidJson);
        }
        self.at += 1;
        Ok(())
    }

    /// Reads one value, however deep.
    pub(super) fn value(&mut self) -> Result<(), DocError> {
        let base = self.frames.len();
        loop {
            match self.peek() {
                Some(b'"') => self.string()?,
                Some(b'-' | b'0'..=b'9') => {
                    let (input, at) = (self.input, self.at);
                    let (out, term) = (&mut self.out, &mut self.term);
                    self.at = number::<TEXT, TERM>(input, at, out, term, &mut self.deferred)?;
                }
                Some(b'{') => {
                    self.open(true)?;
                    if self.peek() == Some(b'}') {
                        self.close();
                    } else {
                        self.name()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.open(false)?;
                    if self.peek() == Some(b']') {
                        self.close();
                    } else {
                        self.count_element();
                        continue;
                    }
                }
                Some(b't') => self.literal(b"true")?,
                Some(b'f') => self.literal(b"false")?,
                Some(b'n') => self.literal(b"null")?,
                _ => return Err(DocError::InvalidJson),
            }
            if self.end_of_value(base)? {
                return Ok(());
            }
        }
    }

    /// After a value: closes what ends here and starts the next member or element. Returns whether
    /// the value that was started when `base` frames were open is complete.
    #[inline]
    fn end_of_value(&mut self, base: usize) -> Result<bool, DocError> {
        while self.frames.len() > base {
            let is_object = self.frames.last().is_some_and(|frame| frame.is_object);
            match (self.peek(), is_object) {
                (Some(b','), true) => {
                    self.at += 1;
                    self.name()?;
                    return Ok(false);
                }
                (Some(b','), false) => {
                    self.at += 1;
                    self.count_element();
                    return Ok(false);
                }
                (Some(b'}'), true) | (Some(b']'), false) => self.close(),
                _ => return Err(DocError::InvalidJson),
            }
        }
        Ok(true)
    }

    fn count_element(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            if TEXT && frame.count > 0 {
                self.out.push(b',');
            }
            frame.count += 1;
        }
    }

    fn literal(&mut self, word: &'static [u8]) -> Result<(), DocError> {
        let end = self.at + word.len();
        if self.input.get(self.at..end) != Some(word) {
            return Err(DocError::InvalidJson);
        }
        self.at = end;
        if TEXT {
            self.out.extend_from_slice(word);
        }
        if TERM {
            term::write_atom(word, &mut self.term);
        }
        Ok(())
    }

    /// Reads the string that starts here.
    #[inline]
    fn string(&mut self) -> Result<(), DocError> {
        let input = self.input;
        let start = self.at + 1;
        let end = find_special(input, start);
        if input.get(end) != Some(&b'"') {
            return self.unusual_string();
        }
        self.at = end + 1;
        if TEXT {
            self.out.extend_from_slice(&input[start - 1..=end]);
        }
        if TERM {
            term::write_binary(&input[start..end], &mut self.term);
        }
        Ok(())
    }

    /// Reads a string with escapes.
    #[cold]
    fn unusual_string(&mut self) -> Result<(), DocError> {
        let mut text = std::mem::take(&mut self.unescaped);
        text.clear();
        self.at = unescape(self.input, self.at + 1, &mut text)? + 1;
        if TEXT {
            let text = std::str::from_utf8(&text).map_err(|_| DocError::InvalidJson)?;
            self.out.push(b'"');
            write_escaped(text, &mut self.out);
            self.out.push(b'"');
        }
        if TERM {
            term::write_binary(&text, &mut self.term);
        }
        self.unescaped = text;
        Ok(())
    }

    /// Begins the object or array at the position.
    pub(super) fn open(&mut self, is_object: bool) -> Result<(), DocError> {
        if self.frames.len() >= DEPTH_MAX {
            return Err(DocError::TooDeep);
        }
        self.at += 1;
        let (term_start, members_start) = (self.term.len(), self.members.len());
        self.frames.push(Frame {
            is_object,
            count: 0,
            term_start,
            members_start,
        });
        if TEXT {
            self.out.push(if is_object { b'{' } else { b'[' });
        }
        if TERM {
            if is_object {
                self.term.extend_from_slice(&[term::SMALL_TUPLE, 1]);
            }
            self.term.extend_from_slice(&[term::LIST, 0, 0, 0, 0]);
        }
        Ok(())
    }

    /// Ends the innermost object or array; the position is at its bracket.
    pub(super) fn close(&mut self) {
        self.at += 1;
        let Some(mut frame) = self.frames.pop() else {
            return;
        };
        if frame.is_object && TEXT {
            frame.count -= self.drop_duplicates(frame.members_start);
            self.members.truncate(frame.members_start);
        }
        if TEXT {
            self.out.push(if frame.is_object { b'}' } else { b']' });
        }
        if TERM {
            self.close_term(&frame);
        }
    }

    #[inline]
    fn close_term(&mut self, frame: &Frame) {
        let tag = frame.term_start + if frame.is_object { 2 } else { 0 };
        let elements = tag + 5;
        if frame.count == 0 {
            self.term.truncate(tag);
        } else if !frame.is_object && is_byte_list(&self.term[elements..], frame.count) {
            return self.write_byte_list(tag, frame.count as u16);
        } else {
            self.term[tag + 1..elements].copy_from_slice(&frame.count.to_be_bytes());
        }
        self.term.push(term::NIL);
    }

    /// Erlang writes a list of bytes as if it were a string.
    fn write_byte_list(&mut self, tag: usize, count: u16) {
        let bytes = tag + 3;
        self.term[tag] = term::STRING;
        self.term[tag + 1..bytes].copy_from_slice(&count.to_be_bytes());
        for index in 0..usize::from(count) {
            self.term[bytes + index] = self.term[tag + 6 + 2 * index];
        }
        self.term.truncate(bytes + usize::from(count));
    }

    /// Reads a member's name and the colon after it, in the innermost object.
    #[inline]
    pub(super) fn name(&mut self) -> Result<MemberStart, DocError> {
        if self.peek() != Some(b'"') {
            return Err(DocError::InvalidJson);
        }
        let (out, term) = (self.out.len(), self.term.len());
        let count = self.frames.last_mut().map_or(0, |frame| {
            frame.count += 1;
            frame.count
        });
        if TEXT && count > 1 {
            self.out.push(b',');
        }
        if TERM {
            self.term.extend_from_slice(&[term::SMALL_TUPLE, 2]);
        }
        let name_start = self.out.len() + 1;
        self.string()?;
        let name_out = (name_start, self.out.len().saturating_sub(1));
        if TEXT {
            let fingerprint = fingerprint(&self.out[name_out.0..name_out.1]);
            self.members.push(OpenMember {
                out_start: out,
                name: name_out,
                term_start: term,
                fingerprint,
            });
            self.expect(b':')?;
            self.out.push(b':');
        } else {
            self.expect(b':')?;
        }
        Ok(MemberStart {
            out,
            term,
            name_out,
            name_term: (term + 7, self.term.len()),
        })
    }

    /// Removes the member that was read last.
    pub(super) fn take_back(&mut self, start: &MemberStart) {
        self.out.truncate(start.out);
        self.term.truncate(start.term);
        self.members.pop();
        if let Some(frame) = self.frames.last_mut() {
            frame.count -= 1;
        }
    }

    /// Keeps the last of members with the same name. Returns the number of dropped members.
    #[inline]
    fn drop_duplicates(&mut self, start: usize) -> u32 {
        if all_differ(&self.members[start..], &mut self.fingerprints) {
            return 0;
        }
        let doomed = self.duplicates(start);
        self.drop_members(start, &doomed);
        doomed.len() as u32
    }

    /// Returns the indexes, ascending, of the members that a later one of the same name replaces.
    #[cold]
    fn duplicates(&self, start: usize) -> Vec<usize> {
        let members = &self.members[start..];
        let name = |index: usize| {
            let member: &OpenMember = &members[index];
            (member.fingerprint, &self.out[member.name.0..member.name.1])
        };
        let mut order: Vec<usize> = (0..members.len()).collect();
        order.sort_unstable_by(|&left, &right| name(left).cmp(&name(right)).then(left.cmp(&right)));
        let pairs = order
            .array_windows()
            .filter(|[left, right]| name(*left) == name(*right));
        let mut doomed: Vec<usize> = pairs.map(|[left, _]| *left).collect();
        doomed.sort_unstable();
        doomed
    }

    /// Marks members to be cut out. The last member is never among them, since it is the last of
    /// its name.
    #[cold]
    fn drop_members(&mut self, start: usize, doomed: &[usize]) {
        let members = &self.members[start..];
        for &index in doomed {
            let (member, next) = (members[index], members[index + 1]);
            self.cuts.out.push((member.out_start, next.out_start));
            self.cuts.term.push((member.term_start, next.term_start));
        }
        // The first that stays loses its comma.
        let first = doomed
            .iter()
            .enumerate()
            .take_while(|(place, index)| place == *index)
            .count();
        if let Some(first) = members.get(first).filter(|_| first > 0) {
            self.cuts.out.push((first.out_start, first.name.0 - 1));
        }
    }

    /// Returns the number of ranges marked to be cut out, for [`Parser::cut_since`].
    pub(super) fn cut_mark(&self) -> CutMark {
        CutMark {
            out: self.cuts.out.len(),
            term: self.cuts.term.len(),
        }
    }

    /// Cuts out the part marked since. All of it must come after everything written at the time of
    /// the mark.
    #[inline]
    pub(super) fn cut_since(&mut self, mark: &CutMark) {
        if self.cuts.out.len() > mark.out {
            cut(&mut self.out, self.cuts.out.split_off(mark.out));
            cut(&mut self.term, self.cuts.term.split_off(mark.term));
        }
    }
}

/// Returns whether no two members have the same fingerprint. `scratch` is overwritten.
#[inline]
fn all_differ(members: &[OpenMember], scratch: &mut Vec<u64>) -> bool {
    if members.len() <= PAIRWISE_MAX {
        let is_new = |(index, member): (usize, &OpenMember)| {
            members[..index]
                .iter()
                .all(|earlier| earlier.fingerprint != member.fingerprint)
        };
        return members.iter().enumerate().all(is_new);
    }
    scratch.clear();
    scratch.extend(members.iter().map(|member| member.fingerprint));
    scratch.sort_unstable();
    scratch.array_windows().all(|[left, right]| left != right)
}

/// Removes ranges, which may overlap, in one pass.
#[cold]
fn cut(buffer: &mut Vec<u8>, mut cuts: Vec<(usize, usize)>) {
    cuts.sort_unstable();
    let (mut written, mut read) = (cuts.first().map_or(0, |first| first.0), 0);
    for (start, end) in cuts {
        if read > 0 && start > read {
            buffer.copy_within(read..start, written);
            written += start - read;
        }
        read = read.max(end);
    }
    let length = buffer.len();
    buffer.copy_within(read..length, written);
    buffer.truncate(written + length - read);
}

/// Returns whether the terms are `count` integers from 0 to 255, few enough for Erlang's short
/// form. If each two bytes start with the tag of such an integer, then each two bytes are one: the
/// first is, and a term follows an integer.
fn is_byte_list(terms: &[u8], count: u32) -> bool {
    count <= u32::from(u16::MAX)
        && terms.len() == 2 * count as usize
        && terms
            .chunks_exact(2)
            .all(|term| term[0] == term::SMALL_INTEGER)
}

#[inline]
fn fingerprint(name: &[u8]) -> u64 {
    let length = name.len() as u64;
    match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(first), Some(last)) => {
            let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
            first.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ last.rotate_left(29) ^ length
        }
        _ => {
            let mut word = [0; 8];
            word[..name.len()].copy_from_slice(name);
            u64::from_le_bytes(word) ^ length << 56
        }
    }
}
