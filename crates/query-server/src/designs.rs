//! Shows, lists, updates, filters, validation and rewrites.

use std::sync::Arc;

use crate::answer::{Answer, elements, plain};
use crate::language::{DesignDoc, Designs, Error, ListIo};
use crate::pool::{Lease, Pool};
use crate::prepare;
use crate::process::{Process, Taught};
use crate::settings::command_start;

pub(crate) struct ExternalDesigns {
    pool: Arc<Pool>,
    database: Arc<str>,
    language: String,
}

impl ExternalDesigns {
    pub fn new(pool: Arc<Pool>, database: &str, language: String) -> Self {
        Self {
            pool,
            database: database.into(),
            language,
        }
    }

    fn lease(&self, ddoc: &DesignDoc) -> Result<Lease, Error> {
        // A process that knows other design documents of the database learns one more, without a
        // reset.
        let rank = |taught: &Taught| match taught {
            Taught::Designs(database, _) if *database != self.database => 0,
            Taught::Designs(_, known) if has(known, ddoc) => 2,
            Taught::Designs(_, known) if known.len() < crate::DESIGNS_MAX => 1,
            _ => 0,
        };
        let mut lease = prepare(&self.pool, &self.language, rank, |process| {
            process.taught = Taught::Designs(self.database.clone(), Vec::new());
            Ok(())
        })?;
        let process = lease.process();
        let mut known = match std::mem::replace(&mut process.taught, Taught::Unknown) {
            Taught::Designs(_, known) => known,
            _ => Vec::new(),
        };
        if !has(&known, ddoc) {
            let mut command = command_start("ddoc", &["new", &ddoc.id]);
            command.extend_from_slice(&ddoc.json);
            command.push(b']');
            process.designs_taught += 1;
            if let Err(error) = process.tell(&command) {
                lease.done();
                return Err(error);
            }
            known.retain(|other| other.id != ddoc.id);
            known.push(ddoc.clone());
        }
        process.taught = Taught::Designs(self.database.clone(), known);
        Ok(lease)
    }
}

fn has(known: &[DesignDoc], ddoc: &DesignDoc) -> bool {
    known.iter().any(|other| {
        other.id == ddoc.id && (Arc::ptr_eq(&other.json, &ddoc.json) || other.json == ddoc.json)
    })
}

/// `["ddoc", id, path, args]`
fn call_command(ddoc: &DesignDoc, path: &[&str], args: &[u8]) -> Vec<u8> {
    let mut command = command_start("ddoc", &[&ddoc.id]);
    command.push(b'[');
    for (index, step) in path.iter().enumerate() {
        if index > 0 {
            command.push(b',');
        }
        document::write_json_string(step, &mut command);
    }
    command.extend_from_slice(b"],");
    command.extend_from_slice(args);
    command.push(b']');
    command
}

impl Designs for ExternalDesigns {
    fn call(&mut self, ddoc: &DesignDoc, path: &[&str], args: &[u8]) -> Result<Vec<u8>, Error> {
        let mut lease = self.lease(ddoc)?;
        let process = lease.process();
        let result = match process.ask(&call_command(ddoc, path, args))? {
            // CouchDB takes both, and Erlang's atom ok, for a validation that passes.
            Answer::Value(value)
                if path == ["validate_doc_update"] && matches!(&value[..], b"true" | b"\"ok\"") =>
            {
                Ok(b"1".to_vec())
            }
            // Refused here, where its length is bounded: there may be one for each document of a request.
            Answer::Value(value) if path == ["validate_doc_update"] && value != b"1" => {
                Err(Error::unknown_verdict(&value))
            }
            Answer::Value(value) => Ok(value),
            answer => Err(process.error_of(answer)),
        };
        lease.done();
        result
    }

    fn list(
        &mut self,
        ddoc: &DesignDoc,
        path: &[&str],
        args: &[u8],
        io: &mut dyn ListIo,
    ) -> Result<(), Error> {
        let mut lease = self.lease(ddoc)?;
        let process = lease.process();
        let first = process.ask(&call_command(ddoc, path, args))?;
        let mut dialogue = Dialogue {
            process,
            ended: false,
        };
        let result = dialogue.run(first, io);
        let is_well = dialogue.ended || (!dialogue.process.is_spent && dialogue.give_up());
        if is_well {
            lease.done();
        }
        result
    }
}

/// The dialogue of a list function: it requests rows by answering.
struct Dialogue<'a> {
    process: &'a mut Process,
    /// The function is done, or failed: the process waits for another command.
    ended: bool,
}

impl Dialogue<'_> {
    fn run(&mut self, first: Answer, io: &mut dyn ListIo) -> Result<(), Error> {
        let mut parts = self.parts(first)?;
        // A function may end without having started: then it has no headers of its own.
        let headers = parts.headers.take();
        io.start(headers.as_deref().unwrap_or(br#"{"headers":{}}"#))?;
        loop {
            for chunk in &parts.chunks {
                io.chunk(chunk)?;
            }
            if self.ended {
                return Ok(());
            }
            let mut command = Vec::new();
            match io.row()? {
                Some(row) => {
                    command = command_start("list_row", &[]);
                    command.extend_from_slice(&row);
                    command.push(b']');
                }
                None => command.extend_from_slice(LIST_END),
            }
            let answer = self.process.ask(&command)?;
            parts = self.parts(answer)?;
        }
    }

    /// Takes `["start", chunks, response]`, `["chunks", chunks]` or `["end", chunks]` apart.
    fn parts(&mut self, answer: Answer) -> Result<Parts, Error> {
        if let Answer::Value(text) = &answer {
            let elements = elements(text);
            let chunks = elements
                .get(1)
                .map(|chunks| {
                    crate::answer::elements(chunks)
                        .into_iter()
                        .map(plain)
                        .collect()
                })
                .unwrap_or_default();
            let parts = |headers: Option<&&[u8]>| Parts {
                headers: headers.map(|headers| headers.to_vec()),
                chunks,
            };
            match elements.first().copied() {
                Some(b"\"start\"") => return Ok(parts(elements.get(2))),
                Some(b"\"chunks\"") => return Ok(parts(None)),
                Some(b"\"end\"") => {
                    self.ended = true;
                    return Ok(parts(None));
                }
                _ => {}
            }
            // The state of such a process is unknown.
            self.process.is_spent = true;
        }
        self.ended = true;
        Err(self.process.error_of(answer))
    }

    /// Ends the list function by reporting that there are no more rows. Returns whether it ended
    /// normally.
    fn give_up(&mut self) -> bool {
        let ended = self
            .process
            .ask(LIST_END)
            .is_ok_and(|answer| self.parts(answer).is_ok());
        ended && self.ended
    }
}

const LIST_END: &[u8] = b"[\"list_end\"]";

struct Parts {
    /// Only for `start`.
    headers: Option<Vec<u8>>,
    chunks: Vec<String>,
}
