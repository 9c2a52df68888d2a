//! The push parser.

use bytes::Bytes;

use super::level::{Level, Step};
use super::{Headers, Limits, MultipartError};

/// What a multipart body consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A part begins. [`Parser::enter`] may be called now, if it is a multipart itself.
    Part(Headers),
    /// A piece of the part's content, never empty.
    Data(Bytes),
    /// The part is complete.
    PartEnd,
    /// A multipart is complete: the innermost one that was entered and did not end yet.
    End,
}

/// Takes bytes as they come, and tells what they are.
///
/// After an error, a parser stays where it is, and is of no more use.
#[derive(Debug)]
pub struct Parser {
    /// The body, then the multiparts in it that were entered, each a part of the one before. Never empty.
    levels: Vec<Level>,
    limits: Limits,
    /// The last event was [`Event::Part`].
    at_part: bool,
}

impl Parser {
    /// # Errors
    /// [`MultipartError::Boundary`].
    pub fn new(boundary: &str, limits: Limits) -> Result<Parser, MultipartError> {
        Ok(Parser {
            levels: vec![Level::new(boundary)?],
            limits,
            at_part: false,
        })
    }

    /// Takes in what came next. Take all events before pushing more, so that what is held stays small.
    pub fn push(&mut self, bytes: &[u8]) {
        self.levels[0].push(bytes);
    }

    /// Reads the part that has just begun as a multipart: its own parts follow, then [`Event::End`], and then the part's
    /// [`Event::PartEnd`]. Whatever else is in the part is passed over.
    ///
    /// # Errors
    /// [`MultipartError::NotAtPart`], [`MultipartError::TooDeep`], [`MultipartError::Boundary`].
    pub fn enter(&mut self, boundary: &str) -> Result<(), MultipartError> {
        if !self.at_part {
            return Err(MultipartError::NotAtPart);
        }
        if self.levels.len() >= self.limits.depth_max {
            return Err(MultipartError::TooDeep);
        }
        self.levels.push(Level::new(boundary)?);
        self.at_part = false;
        Ok(())
    }

    /// How many multiparts have been entered: 1 in the body itself.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// The next event; `None` before more bytes are pushed, and after the body's end.
    ///
    /// # Errors
    /// [`MultipartError::HeadersTooLong`], [`MultipartError::Header`], and [`MultipartError::Truncated`] when a part ends before the
    /// multipart in it does.
    pub fn next_event(&mut self) -> Result<Option<Event>, MultipartError> {
        loop {
            let innermost = self.levels.len() - 1;
            match self.levels[innermost].step(&self.limits)? {
                Step::Hungry => {
                    if !self.feed(innermost)? {
                        return Ok(None);
                    }
                    if self.levels.len() <= innermost {
                        return Ok(Some(Event::PartEnd));
                    }
                }
                Step::Part(headers) => {
                    self.at_part = true;
                    return Ok(Some(Event::Part(headers)));
                }
                step => {
                    self.at_part = false;
                    return Ok(Some(match step {
                        Step::Data(data) => Event::Data(data),
                        Step::End => Event::End,
                        _ => Event::PartEnd,
                    }));
                }
            }
        }
    }

    /// Gives a level more of the part that it is in; false when there is nothing yet. When the part ended, the level goes.
    fn feed(&mut self, level: usize) -> Result<bool, MultipartError> {
        let Some(outer) = level.checked_sub(1) else {
            return Ok(false);
        };
        loop {
            match self.levels[outer].step(&self.limits)? {
                Step::Data(data) => {
                    self.levels[level].push(&data);
                    return Ok(true);
                }
                Step::Hungry => {
                    if !self.feed(outer)? {
                        return Ok(false);
                    }
                    // The outer level's own part cannot end before the part in it.
                    if self.levels.len() <= level {
                        return Err(MultipartError::Truncated);
                    }
                }
                Step::PartEnd if self.levels[level].ended() => {
                    self.levels.truncate(level);
                    return Ok(true);
                }
                Step::PartEnd | Step::Part(_) | Step::End => return Err(MultipartError::Truncated),
            }
        }
    }

    /// To be called when no more bytes come.
    ///
    /// # Errors
    /// [`MultipartError::Truncated`] when the body's closing delimiter has not been seen.
    pub fn finish(&self) -> Result<(), MultipartError> {
        match self.levels.as_slice() {
            [body] if body.ended() => Ok(()),
            _ => Err(MultipartError::Truncated),
        }
    }
}
