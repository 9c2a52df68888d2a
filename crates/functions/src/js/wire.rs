//! Frames between this process and its workers: a length, a kind, and fields that are each preceded
//! by their length.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use super::Options;
use super::log::Line;
use confine::Confinement;
use query_server::language::{DesignDoc, Emit, Emits, Error, Indexes, MapFailure, MapGroup, Owner};

/// Maximum length of a frame, in bytes.
const FRAME_MAX: u32 = 1 << 30;

/// The kind of a frame. Requests come from the server's process, the others from the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    // Requests.
    Options,
    Define,
    Verify,
    Map,
    Reduce,
    Rereduce,
    Call,
    List,
    Check,
    // Replies.
    /// The first one: the worker is set up.
    Ready,
    Done,
    Failed,
    /// The worker does not know the number of the request (any more).
    Unknown,
    Log,
    // While a list function runs: the worker asks, the server's process answers with `Done`, `Row`
    // or `Interrupted`.
    Start,
    Chunk,
    NextRow,
    Row,
    // On the second socket, which is the worker's standard output
    /// Starts sampling, with a rate per second.
    Profile,
    /// Samples: requested, which ends the profile, and sent.
    Samples,
}

const KINDS: [Kind; 20] = [
    Kind::Options,
    Kind::Define,
    Kind::Verify,
    Kind::Map,
    Kind::Reduce,
    Kind::Rereduce,
    Kind::Call,
    Kind::List,
    Kind::Check,
    Kind::Ready,
    Kind::Done,
    Kind::Failed,
    Kind::Unknown,
    Kind::Log,
    Kind::Start,
    Kind::Chunk,
    Kind::NextRow,
    Kind::Row,
    Kind::Profile,
    Kind::Samples,
];

/// A frame to be sent.
pub(super) struct Frame(Vec<u8>);

impl Frame {
    pub fn new(kind: Kind) -> Frame {
        Frame(vec![0, 0, 0, 0, kind as u8])
    }

    /// Creates a frame with capacity for `bytes` bytes.
    pub fn of(kind: Kind, bytes: usize) -> Frame {
        let mut frame = Vec::with_capacity(bytes + 5);
        frame.extend_from_slice(&[0, 0, 0, 0, kind as u8]);
        Frame(frame)
    }

    pub fn number(mut self, number: u64) -> Frame {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Frame {
        self = self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn text(self, text: &str) -> Frame {
        self.bytes(text.as_bytes())
    }

    pub fn optional(self, bytes: Option<&[u8]>) -> Frame {
        match bytes {
            Some(bytes) => self.number(1).bytes(bytes),
            None => self.number(0),
        }
    }

    pub fn send(mut self, to: &mut impl Write) -> io::Result<()> {
        let len = u32::try_from(self.0.len() - 4).ok();
        let Some(len) = len.filter(|&len| len <= FRAME_MAX) else {
            return Err(io::Error::other(
                "a message to or from a worker is too long",
            ));
        };
        self.0[..4].copy_from_slice(&len.to_le_bytes());
        to.write_all(&self.0)
    }
}

/// A received frame.
pub(super) struct Received {
    pub kind: Kind,
    bytes: Vec<u8>,
    at: usize,
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a malformed message")
}

impl Received {
    /// Reads a frame; `None` at the end.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Received>> {
        let mut head = [0; 5];
        let mut at = 0;
        while at < head.len() {
            match from.read(&mut head[at..]) {
                Ok(0) if at == 0 => return Ok(None),
                Ok(0) => return Err(malformed()),
                Ok(read) => at += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let [a, b, c, d, kind] = head;
        let len = u32::from_le_bytes([a, b, c, d]);
        if len == 0 || len > FRAME_MAX {
            return Err(malformed());
        }
        let kind = *KINDS.get(usize::from(kind)).ok_or_else(malformed)?;
        let mut bytes = vec![0; len as usize - 1];
        from.read_exact(&mut bytes)?;
        Ok(Some(Received { kind, bytes, at: 0 }))
    }

    pub fn number(&mut self) -> io::Result<u64> {
        let field = self.bytes[self.at..].first_chunk().ok_or_else(malformed)?;
        self.at += field.len();
        Ok(u64::from_le_bytes(*field))
    }

    /// Returns a field's range.
    fn field(&mut self) -> io::Result<std::ops::Range<usize>> {
        let len = usize::try_from(self.number()?).map_err(|_| malformed())?;
        let start = self.at;
        let end = start
            .checked_add(len)
            .filter(|&end| end <= self.bytes.len());
        self.at = end.ok_or_else(malformed)?;
        Ok(start..self.at)
    }

    pub fn bytes(&mut self) -> io::Result<&[u8]> {
        let field = self.field()?;
        Ok(&self.bytes[field])
    }

    pub fn text(&mut self) -> io::Result<String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| malformed())
    }

    pub fn optional(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.number()? == 0 {
            return Ok(None);
        }
        Ok(Some(self.bytes()?.to_vec()))
    }

    /// Reads strings, preceded by their number.
    pub fn texts(&mut self) -> io::Result<Vec<String>> {
        let count = self.number()?;
        (0..count).map(|_| self.text()).collect()
    }

    fn optional_text(&mut self) -> io::Result<Option<String>> {
        let bytes = self.optional()?;
        let text = bytes.map(String::from_utf8).transpose();
        text.map_err(|_| malformed())
    }

    /// Returns the remaining fields, as slices.
    pub fn rest(&mut self) -> io::Result<Vec<&[u8]>> {
        let mut fields = Vec::new();
        while self.at < self.bytes.len() {
            fields.push(self.field()?);
        }
        Ok(fields.into_iter().map(|field| &self.bytes[field]).collect())
    }
}

/// The thing that a number stands for, in a worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Definition {
    Maps(MapGroup),
    Reduce {
        database: Arc<str>,
        source: String,
        lib: Option<String>,
    },
    Design {
        database: Arc<str>,
        ddoc: DesignDoc,
    },
}

impl Definition {
    /// Returns its approximate memory, in bytes.
    pub fn bytes(&self) -> usize {
        let lib = |lib: &Option<String>| lib.as_ref().map_or(0, String::len);
        // Including the overhead of an entry.
        200 + match self {
            Definition::Maps(group) => {
                group.maps.iter().map(String::len).sum::<usize>() + lib(&group.lib)
            }
            Definition::Reduce {
                source, lib: of, ..
            } => source.len() + lib(of),
            Definition::Design { ddoc, .. } => ddoc.json.len(),
        }
    }

    pub fn frame(&self, number: u64) -> Frame {
        let frame = Frame::new(Kind::Define).number(number);
        match self {
            Definition::Maps(group) => {
                let frame = frame.number(0).text(&group.language);
                let frame = frame.text(&group.owner.database).text(&group.owner.design);
                let views = &group.owner.views;
                let frame = frame.number(views.len() as u64);
                let frame = views.iter().fold(frame, |frame, view| frame.text(view));
                let frame = frame.number(group.records.into());
                let frame = frame.number(group.tells.into());
                let frame = frame.number(group.leaves_out.into());
                let frame = frame.number(match group.indexes {
                    Indexes::No => 0,
                    Indexes::Nouveau => 1,
                    Indexes::Clouseau => 2,
                });
                let frame = frame.optional(group.lib.as_deref().map(str::as_bytes));
                let maps = group.maps.iter();
                maps.fold(frame, |frame, map| frame.text(map))
            }
            Definition::Reduce {
                database,
                source,
                lib,
            } => {
                let lib = lib.as_deref().map(str::as_bytes);
                frame.number(1).text(database).text(source).optional(lib)
            }
            Definition::Design { database, ddoc } => {
                let frame = frame.number(2).text(database);
                let frame = frame.text(&ddoc.id).text(&ddoc.rev);
                frame.text(&ddoc.language).bytes(&ddoc.json)
            }
        }
    }

    /// Reads it with its number.
    pub fn read(frame: &mut Received) -> io::Result<(u64, Definition)> {
        let number = frame.number()?;
        let definition = match frame.number()? {
            0 => Definition::Maps(MapGroup {
                language: frame.text()?,
                owner: Owner {
                    database: frame.text()?.into(),
                    design: frame.text()?,
                    views: frame.texts()?,
                },
                records: frame.number()? != 0,
                tells: frame.number()? != 0,
                leaves_out: frame.number()? != 0,
                indexes: match frame.number()? {
                    0 => Indexes::No,
                    1 => Indexes::Nouveau,
                    _ => Indexes::Clouseau,
                },
                lib: frame.optional_text()?,
                maps: frame
                    .rest()?
                    .into_iter()
                    .map(|map| String::from_utf8(map.to_vec()).map_err(|_| malformed()))
                    .collect::<io::Result<_>>()?,
            }),
            1 => Definition::Reduce {
                database: frame.text()?.into(),
                source: frame.text()?,
                lib: frame.optional_text()?,
            },
            2 => Definition::Design {
                database: frame.text()?.into(),
                ddoc: DesignDoc {
                    id: frame.text()?,
                    rev: frame.text()?,
                    language: frame.text()?,
                    json: frame.bytes()?.into(),
                },
            },
            _ => return Err(malformed()),
        };
        Ok((number, definition))
    }
}

/// Encodes settings of a worker, and its expected confinement.
pub(super) fn options_frame(options: &Options, confinement: Confinement) -> Frame {
    Frame::new(Kind::Options)
        .number(options.time.as_millis() as u64)
        .number(options.memory_bytes as u64)
        .number(options.stack_bytes as u64)
        .number(options.emit_rows_max as u64)
        .number(options.emit_bytes_max as u64)
        .number(confinement.files.into())
        .number(confinement.calls.into())
}

pub(super) fn read_options(frame: &mut Received) -> io::Result<(Options, Confinement)> {
    let size = |frame: &mut Received| Ok::<_, io::Error>(frame.number()? as usize);
    let options = Options {
        time: Duration::from_millis(frame.number()?),
        memory_bytes: size(frame)?,
        stack_bytes: size(frame)?,
        emit_rows_max: size(frame)?,
        emit_bytes_max: size(frame)?,
        workers_max: 1,
        ..Options::default()
    };
    let confinement = Confinement {
        files: frame.number()? != 0,
        calls: frame.number()? != 0,
    };
    Ok((options, confinement))
}

/// Names of limits, which are `'static` on both sides.
const LIMITS: [&str; 4] = [
    query_server::language::TIME_LIMIT,
    query_server::language::MEMORY_LIMIT,
    "emit_rows_limit",
    "emit_bytes_limit",
];

pub(super) fn error_frame(error: &Error) -> Frame {
    put_error(Frame::new(Kind::Failed), error)
}

fn put_error(frame: Frame, error: &Error) -> Frame {
    match error {
        Error::Compile(reason) => frame.number(0).text(reason),
        Error::Thrown { name, reason } => frame.number(1).text(name).text(reason),
        Error::Forbidden(reason) => frame.number(2).text(reason),
        Error::Unauthorized(reason) => frame.number(3).text(reason),
        Error::Limit { limit, value } => {
            let limit = LIMITS.iter().position(|name| name == limit);
            let limit = limit.unwrap_or(LIMITS.len());
            frame.number(4).number(limit as u64).text(value)
        }
        Error::UnknownLanguage(reason) => frame.number(5).text(reason),
        Error::ReduceOverflow(reason) => frame.number(6).text(reason),
        Error::Process(reason) => frame.number(7).text(reason),
        Error::BadArgument(reason) => frame.number(8).text(reason),
        // Workers give no places.
        Error::Busy { .. } | Error::Late { .. } => frame.number(7).text(&error.to_string()),
    }
}

pub(super) fn read_error(frame: &mut Received) -> io::Result<Error> {
    Ok(match frame.number()? {
        0 => Error::Compile(frame.text()?),
        1 => Error::Thrown {
            name: frame.text()?,
            reason: frame.text()?,
        },
        2 => Error::Forbidden(frame.text()?),
        3 => Error::Unauthorized(frame.text()?),
        4 => {
            let limit = frame.number()? as usize;
            Error::Limit {
                limit: LIMITS.get(limit).copied().ok_or_else(malformed)?,
                value: frame.text()?,
            }
        }
        5 => Error::UnknownLanguage(frame.text()?),
        6 => Error::ReduceOverflow(frame.text()?),
        7 => Error::Process(frame.text()?),
        8 => Error::BadArgument(frame.text()?),
        _ => return Err(malformed()),
    })
}

/// Encodes replies to several calls.
pub(super) fn replies_frame(replies: &[Result<Vec<u8>, Error>]) -> Frame {
    let frame = Frame::new(Kind::Done).number(replies.len() as u64);
    replies.iter().fold(frame, |frame, reply| match reply {
        Ok(json) => frame.number(0).bytes(json),
        Err(error) => put_error(frame.number(1), error),
    })
}

/// Reads them; there are at least one and at most `calls`.
pub(super) fn read_replies(
    frame: &mut Received,
    calls: usize,
) -> io::Result<Vec<Result<Vec<u8>, Error>>> {
    let count = usize::try_from(frame.number()?).map_err(|_| malformed())?;
    if count > calls || (count == 0 && calls > 0) {
        return Err(malformed());
    }
    let mut replies = Vec::with_capacity(count);
    for _ in 0..count {
        replies.push(match frame.number()? {
            0 => Ok(frame.bytes()?.to_vec()),
            _ => Err(read_error(frame)?),
        });
    }
    Ok(replies)
}

/// Encodes the rows of the first `done` documents.
pub(super) fn emits_frame(done: usize, emits: &Emits) -> Frame {
    let size = emits.bytes.len() + emits.rows.len() * 24 + 16;
    let frame = Frame::of(Kind::Done, size).number(done as u64);
    let frame = frame.bytes(&emits.bytes);
    let frame = numbers(frame, &emits.failures);
    let frame = numbers(frame, &emits.spent);
    let frame = frame.number(emits.thrown.len() as u64);
    let mut frame = emits.thrown.iter().fold(frame, |frame, thrown| {
        let frame = frame.number(thrown.doc.into()).number(thrown.view.into());
        put_error(frame.number(thrown.line.unwrap_or(0).into()), &thrown.error)
    });
    for row in &emits.rows {
        let numbers = [
            row.doc,
            row.view,
            row.key.0,
            row.key.1,
            row.value.0,
            row.value.1,
        ];
        for number in numbers {
            frame.0.extend_from_slice(&number.to_le_bytes());
        }
    }
    frame
}

/// Adds a number for each function, preceded by their count.
fn numbers(frame: Frame, all: &[u64]) -> Frame {
    let frame = frame.number(all.len() as u64);
    all.iter().fold(frame, |frame, n| frame.number(*n))
}

/// Appends a worker's rows for some of `docs` documents, checked; returns the number of documents.
pub(super) fn read_emits(
    frame: &mut Received,
    docs: usize,
    views: usize,
    out: &mut Emits,
) -> io::Result<usize> {
    let done = usize::try_from(frame.number()?).map_err(|_| malformed())?;
    if done > docs || (done == 0 && docs > 0) {
        return Err(malformed());
    }
    let base = out.bytes.len();
    let bytes = frame.field()?;
    let end = bytes.len() as u64 + base as u64;
    if u32::try_from(end).is_err() {
        return Err(io::Error::other("more was emitted than one batch can have"));
    }
    out.bytes.extend_from_slice(&frame.bytes[bytes]);
    for view in 0..frame.number()? {
        let view = usize::try_from(view).ok().filter(|view| *view < views);
        let view = view.ok_or_else(malformed)?;
        let failures = frame.number()?.min(done as u64);
        if failures > 0 {
            out.note_failures(view, failures);
        }
    }
    for view in 0..frame.number()? {
        let view = usize::try_from(view).ok().filter(|view| *view < views);
        out.note_spent(view.ok_or_else(malformed)?, frame.number()?);
    }
    for _ in 0..frame.number()? {
        let thrown = read_thrown(frame)?;
        if thrown.doc as usize >= done || thrown.view as usize >= views {
            return Err(malformed());
        }
        out.thrown.push(thrown);
    }
    let (rows, rest) = frame.bytes[frame.at..].as_chunks::<24>();
    if !rest.is_empty() {
        return Err(malformed());
    }
    for row in rows {
        let (numbers, _) = row.as_chunks::<4>();
        let at = |index: usize| u32::from_le_bytes(numbers[index]);
        let span = |from: usize| -> io::Result<(u32, u32)> {
            let (start, end) = (at(from) as usize + base, at(from + 1) as usize + base);
            if start > end || end > out.bytes.len() {
                return Err(malformed());
            }
            Ok((start as u32, end as u32))
        };
        let emit = Emit {
            doc: at(0),
            view: at(1),
            key: span(2)?,
            value: span(4)?,
        };
        if emit.doc as usize >= done || emit.view as usize >= views {
            return Err(malformed());
        }
        out.rows.push(emit);
    }
    Ok(done)
}

fn read_thrown(frame: &mut Received) -> io::Result<MapFailure> {
    let mut number = || u32::try_from(frame.number()?).map_err(|_| malformed());
    let (doc, view, line) = (number()?, number()?, number()?);
    let error = read_error(frame)?;
    Ok(MapFailure::new(
        doc,
        view,
        error,
        (line > 0).then_some(line),
    ))
}

pub(super) fn log_frame(line: &Line) -> Frame {
    Frame::new(Kind::Log)
        .number(u64::from(line.warning))
        .text(&line.label)
        .text(&line.text)
}

pub(super) fn read_log(frame: &mut Received) -> io::Result<Line> {
    Ok(Line {
        warning: frame.number()? == 1,
        label: frame.text()?,
        text: frame.text()?,
    })
}
