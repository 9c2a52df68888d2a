//! JavaScript's access to the outside of its heap, by the prelude's host: a log, and the peer of a
//! list function.

use std::cell::RefCell;
use std::ffi::CStr;

use document::collation::Collator;
use query_server::language::{Error, ListIo};
use quickjs::{Clock, Host, Reply};

use super::dates::{self, Time};
use super::log::Log;

/// The functions of the prelude's host, except `evaluate`, which is the engine's.
pub(super) const FUNCTIONS: [&CStr; 6] = [
    c"log",
    c"listStart",
    c"listChunk",
    c"listRow",
    c"collate",
    c"readDate",
];

const LOG: usize = 0;
const LIST_START: usize = 1;
const LIST_CHUNK: usize = 2;
const LIST_ROW: usize = 3;
const COLLATE: usize = 4;
const READ_DATE: usize = 5;

/// Separates the two texts that `collate` compares.
const BETWEEN: char = '\u{fffe}';

/// A host with only a log.
#[derive(Default)]
pub(super) struct Console {
    pub log: RefCell<Log>,
}

impl Console {
    /// `label` identifies the functions' owner.
    pub fn new(label: String) -> Console {
        Console {
            log: RefCell::new(Log::new(label)),
        }
    }
}

impl Host for Console {
    fn call(&self, function: usize, text: &str, _: Clock<'_>) -> Reply {
        match function {
            LOG => self.log.borrow_mut().said(text),
            COLLATE => return collate(text),
            READ_DATE => return read_date(text),
            _ => return Reply::TypeError(c"not in a list function"),
        }
        Reply::Undefined
    }
}

/// Compares two texts in the order of views, which is also that of `localeCompare` in CouchDB.
fn collate(texts: &str) -> Reply {
    let (a, b) = texts.split_once(BETWEEN).unwrap_or((texts, ""));
    let order = Collator::root().compare_strings(a, b) as i8;
    Reply::Text(order.to_string().into_bytes())
}

/// Reads a date: a number is its time in milliseconds since 1970, a text that of a local date and time
/// as if it were in UTC, and null is for a text that is not a date.
fn read_date(text: &str) -> Reply {
    match dates::read(text) {
        Some(Time::Utc(ms)) => Reply::Integer(ms),
        Some(Time::Local(ms)) => Reply::Text(ms.to_string().into_bytes()),
        None => Reply::Null,
    }
}

/// The host of a list function.
pub(super) struct Listing<'a> {
    console: &'a Console,
    io: RefCell<&'a mut dyn ListIo>,
    /// The error of the other end.
    error: RefCell<Option<Error>>,
}

impl<'a> Listing<'a> {
    pub fn new(console: &'a Console, io: &'a mut dyn ListIo) -> Listing<'a> {
        Listing {
            console,
            io: RefCell::new(io),
            error: RefCell::default(),
        }
    }

    /// Returns the function's result, or the error of the other end.
    pub fn ended<T>(self, answer: Result<T, Error>) -> Result<T, Error> {
        match self.error.into_inner() {
            Some(error) => Err(error),
            None => answer,
        }
    }
}

impl Host for Listing<'_> {
    /// Time that the other end takes does not count on JavaScript's clock.
    fn call(&self, function: usize, text: &str, clock: Clock<'_>) -> Reply {
        let mut io = self.io.borrow_mut();
        let done = match function {
            LIST_START => clock.excuse(|| io.start(text.as_bytes()).map(|()| Reply::Undefined)),
            LIST_CHUNK => clock.excuse(|| io.chunk(text).map(|()| Reply::Undefined)),
            LIST_ROW => {
                let row = clock.excuse(|| io.row());
                row.map(|row| row.map_or(Reply::Null, Reply::Text))
            }
            _ => return self.console.call(function, text, clock),
        };
        if matches!(done, Ok(Reply::Text(_))) {
            // Each row is a call of its own, as for CouchDB's time-out.
            clock.start();
        }
        done.unwrap_or_else(|error| {
            *self.error.borrow_mut() = Some(error);
            Reply::Stop
        })
    }
}
