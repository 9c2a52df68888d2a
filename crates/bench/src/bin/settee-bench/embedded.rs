//! The database without HTTP that the workload `lightning` writes to: a process of `settee embedded-writer`, which opens it and
//! writes the bulks of its standard input.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A process that is started when the database is opened, and ends with this value.
pub struct Writer {
    program: PathBuf,
    open: Option<Open>,
}

struct Open {
    child: Child,
    bulks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Writer {
    pub fn new(program: PathBuf) -> Writer {
        Writer {
            program,
            open: None,
        }
    }
}

impl bench::Embedded for Writer {
    fn open(&mut self, dir: &Path) -> Result<(), String> {
        let mut child = Command::new(&self.program)
            .arg("embedded-writer")
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (bulks, answers) = pipes.ok_or("the process has no pipes")?;
        let open = self.open.insert(Open {
            child,
            bulks: Some(bulks),
            answers: BufReader::new(answers),
        });
        open.answer()
    }

    fn bulk(&mut self, documents: Vec<(String, String)>) -> Result<(), String> {
        let open = self.open.as_mut().ok_or("the database is not open")?;
        let pairs = documents
            .iter()
            .map(|(id, json)| format!("[{},{json}]", serde_json::Value::from(id.as_str())));
        let line = format!("[{}]\n", pairs.collect::<Vec<_>>().join(","));
        open.send(line.as_bytes())?;
        open.answer()
    }

    fn process_id(&self) -> u32 {
        let own = std::process::id();
        self.open.as_ref().map_or(own, |open| open.child.id())
    }
}

impl Open {
    fn send(&mut self, line: &[u8]) -> Result<(), String> {
        let bulks = self.bulks.as_mut().ok_or("the database is closed")?;
        bulks.write_all(line).map_err(|error| error.to_string())
    }

    fn answer(&mut self) -> Result<(), String> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        match read.map_err(|error| error.to_string())? {
            0 => Err("the process of the database ended; its message is above".to_owned()),
            _ if line == "ok\n" => Ok(()),
            _ => Err(line.trim_end().to_owned()),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // The process ends with its input, and closes the store.
        self.bulks = None;
        drop(self.child.wait());
    }
}
