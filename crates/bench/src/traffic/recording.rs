//! A recording that is read: looked through once as a whole, then read request by request in the order in which they came.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use super::entry::{BODY_BYTES_MAX, Entry, Header, RecordingError};

/// A line may not be longer: a body of control characters is six times as long in JSON.
const LINE_BYTES_MAX: u64 = 6 * BODY_BYTES_MAX as u64 + 1024 * 1024;

/// Where an entry is.
#[derive(Debug, Clone, Copy)]
struct Place {
    at_us: u64,
    offset: u64,
    conn: u64,
    /// No later request came on its connection.
    is_last: bool,
}

/// A recording, of which 32 bytes a request are kept in memory.
pub(super) struct Recording {
    path: String,
    file: BufReader<File>,
    places: Vec<Place>,
    /// The recording's server.
    pub(super) server: String,
    /// The last line was cut off: the recorder was killed.
    pub(super) is_cut: bool,
}

impl Recording {
    /// Reads the file once. A damaged line is found here, before anything is sent.
    pub(super) fn open(path: &Path) -> Result<Self, RecordingError> {
        let shown = path.display().to_string();
        let fail = |source| RecordingError::File {
            path: shown.clone(),
            source,
        };
        let mut file = BufReader::new(File::open(path).map_err(fail)?);
        let mut line = Vec::new();
        let no_recording = |reason| RecordingError::NoRecording {
            path: shown.clone(),
            reason,
        };
        read_line(&mut file, &mut line).map_err(fail)?;
        let header = Header::parse(&line).map_err(no_recording)?;
        let mut offset = line.len() as u64;
        let (mut places, mut is_cut) = (Vec::new(), false);
        for number in 2.. {
            read_line(&mut file, &mut line).map_err(fail)?;
            if line.is_empty() {
                break;
            }
            let damaged = |reason| RecordingError::Damaged {
                path: shown.clone(),
                line: number,
                reason,
            };
            if line.len() as u64 > LINE_BYTES_MAX {
                return Err(damaged(format!("it is longer than {LINE_BYTES_MAX} bytes")));
            }
            match Entry::parse(&line) {
                Ok(entry) => places.push(Place {
                    at_us: entry.at_us,
                    offset,
                    conn: entry.conn,
                    is_last: false,
                }),
                Err(_) if line.last() != Some(&b'\n') => is_cut = true,
                Err(reason) => return Err(damaged(reason)),
            }
            offset += line.len() as u64;
        }
        if places.is_empty() {
            return Err(no_recording("it has no requests".to_owned()));
        }
        places.sort_by_key(|place| (place.at_us, place.offset));
        mark_last(&mut places);
        Ok(Self {
            path: shown,
            file,
            places,
            server: header.server,
            is_cut,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Microseconds from the recording's beginning to its first request.
    pub(super) fn first_us(&self) -> u64 {
        self.places[0].at_us
    }

    /// Microseconds from the first request to the last.
    pub(super) fn length_us(&self) -> u64 {
        self.places[self.places.len() - 1].at_us - self.first_us()
    }

    /// A request in the order of their coming, and whether it is its connection's last.
    pub(super) fn read(&mut self, number: usize) -> Result<(Entry, bool), RecordingError> {
        let place = self.places[number];
        let fail = |source| RecordingError::File {
            path: self.path.clone(),
            source,
        };
        self.file
            .seek(SeekFrom::Start(place.offset))
            .map_err(fail)?;
        let mut line = Vec::new();
        read_line(&mut self.file, &mut line).map_err(fail)?;
        let entry = Entry::parse(&line).map_err(|reason| RecordingError::NoRecording {
            path: self.path.clone(),
            reason: format!("it was changed while it was read: {reason}"),
        })?;
        Ok((entry, place.is_last))
    }
}

fn mark_last(places: &mut [Place]) {
    let mut last = HashMap::new();
    for (at, place) in places.iter().enumerate() {
        last.insert(place.conn, at);
    }
    for at in last.into_values() {
        places[at].is_last = true;
    }
}

/// The next line with its end; empty at the end of the file. No more than the limit and a byte is read.
fn read_line(file: &mut BufReader<File>, line: &mut Vec<u8>) -> std::io::Result<()> {
    line.clear();
    file.take(LINE_BYTES_MAX + 1).read_until(b'\n', line)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn file(lines: &[String], end: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let header = serde_json::to_string(&Header::new("http://a")).unwrap();
        write!(file, "{header}\n{}{end}", lines.join("\n")).unwrap();
        file
    }

    fn line(at_us: u64, conn: u64) -> String {
        serde_json::to_string(&Entry::new(at_us, conn, "GET", &format!("/{at_us}"))).unwrap()
    }

    #[test]
    fn requests_are_read_in_the_order_of_their_coming() {
        let lines = [line(30, 1), line(10, 2), line(20, 1)];
        let file = file(&lines, "\n");
        let mut recording = Recording::open(file.path()).unwrap();
        assert_eq!(
            (recording.len(), recording.first_us(), recording.length_us()),
            (3, 10, 20)
        );
        let read = [0, 1, 2].map(|number| {
            let (entry, is_last) = recording.read(number).unwrap();
            (entry.path, is_last)
        });
        let expected = [("/10", true), ("/20", false), ("/30", true)];
        assert_eq!(
            read,
            expected.map(|(path, is_last)| (path.to_owned(), is_last))
        );
        assert!(!recording.is_cut);
    }

    #[test]
    fn a_cut_last_line_is_left_out_and_said() {
        let whole = line(10, 1);
        for cut in [1, whole.len() / 2, whole.len() - 1] {
            let file = file(&[line(5, 1), whole[..cut].to_owned()], "");
            let recording = Recording::open(file.path()).unwrap();
            assert_eq!((recording.len(), recording.is_cut), (1, true), "{cut}");
        }
    }

    #[test]
    fn damage_before_the_end_is_named_with_its_line() {
        let whole = line(10, 1);
        let changed = [
            whole[..20].to_owned(),
            whole.replace("/10", "\\u0000"),
            whole.replace("GET", "GET / HTTP/1.1\\r\\n"),
            "\u{0}".repeat(100),
            String::new(),
        ];
        for damage in changed {
            let file = file(&[line(5, 1), damage.clone(), line(7, 1)], "\n");
            let error = Recording::open(file.path()).err().unwrap().to_string();
            assert!(error.contains("line 3"), "{damage}: {error}");
        }
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        for text in ["", "{}", "GET / HTTP/1.1\n", "\n\n"] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let error = Recording::open(file.path()).err().unwrap().to_string();
            assert!(error.contains("not a recording"), "{text:?}: {error}");
        }
        let error = Recording::open(file(&[], "").path()).err().unwrap();
        assert!(error.to_string().contains("no requests"));
        let missing = Recording::open(Path::new("/absent/file")).err().unwrap();
        assert!(missing.to_string().contains("/absent/file"));
    }
}
