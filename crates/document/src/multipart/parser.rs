//! The push parser.

use bytes::Bytes;

use super::level::{Level, Step};
use super::{Headers, Limits, MultipartError};

/// An event of a multipart body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A part starts. [`Parser::enter`] may be called now, if it is a multipart itself.
    Part(Headers),
    /// A piece of the part's content, never empty.
    Data(Bytes),
    /// The part is complete.
    PartEnd,
    /// A multipart is complete: the innermost entered one that has not ended yet.
    End,
}

/// Takes bytes as they arrive, and returns events.
///
/// After an error, a parser cannot be used any more.
#[derive(Debug)]
pub struct Parser {
    /// The body, then the entered multiparts, each a part of the one before. Never empty.
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

    /// Adds bytes. All events should be taken before more is pushed, so that little is buffered.
    pub fn push(&mut self, bytes: &[u8]) {
        self.levels[0].push(bytes);
    }

    /// Reads the part that has just started as a multipart: its own parts follow, then
    /// [`Event::End`], and then the part's [`Event::PartEnd`]. Anything else in the part is
    /// skipped.
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

    /// Returns the current nesting: 1 in the body itself.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Returns the next event; `None` before more bytes are pushed, and after the body's end.
    ///
    /// # Errors
    /// [`MultipartError::HeadersTooLong`], [`MultipartError::Header`], and
    /// [`MultipartError::Truncated`] when a part ends before the multipart in it does.
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

    /// Passes more of the outer part to a level; false when there is nothing yet. When the part
    /// ended, the level is removed.
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

    /// Must be called when no more bytes arrive.
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
