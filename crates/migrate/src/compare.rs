//! Are two databases the same? Their lists of leaf revisions are read as streams and summed up;
//! only where the sums differ is a second look taken, so that memory does not grow with the
//! databases.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_128;

use crate::Error;
use crate::server::Server;

/// Number of sums that documents are divided among, by the hashes of their ids.
const BUCKETS: usize = 4096;
/// Maximum number of differing sums that are compared again.
const BUCKETS_SHOWN_MAX: usize = 64;
/// Maximum number of differing documents that are named.
const NAMED_MAX: usize = 20;

/// Documents that the server makes itself: those of source and target need not be the same.
const OWN_DESIGNS: [(&str, &str); 2] = [
    ("_users", "_design/_auth"),
    ("_replicator", "_design/_replicator"),
];

/// The differences between the documents of two databases.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Documents that were compared: those of the source.
    pub documents: u64,
    /// One each, in words.
    pub differences: Vec<String>,
}

/// A row of `_changes?style=all_docs`.
#[derive(Deserialize)]
struct Row {
    id: String,
    changes: Vec<Leaf>,
    #[serde(default)]
    deleted: bool,
}

#[derive(Deserialize)]
struct Leaf {
    rev: String,
}

impl Row {
    /// Returns the same for equal leaves in any order.
    fn leaves(&self) -> String {
        let revs: BTreeSet<&str> = self.changes.iter().map(|leaf| &*leaf.rev).collect();
        let revs: Vec<&str> = revs.into_iter().collect();
        let deleted = if self.deleted { " deleted" } else { "" };
        format!("{}{deleted}", revs.join(" "))
    }

    fn bucket(&self) -> usize {
        (xxh3_128(self.id.as_bytes()) % BUCKETS as u128) as usize
    }
}

/// The sums of one side.
struct Sums {
    buckets: Vec<u128>,
    live: u64,
    deleted: u64,
    /// A uniform random sample of the documents: id and winning revision.
    sample: Vec<(String, String)>,
}

impl Sums {
    fn new() -> Sums {
        Sums {
            buckets: vec![0; BUCKETS],
            live: 0,
            deleted: 0,
            sample: vec![],
        }
    }

    fn add(&mut self, row: &Row, sample: usize) {
        let mut text = row.id.clone().into_bytes();
        text.push(0);
        text.extend_from_slice(row.leaves().as_bytes());
        let bucket = &mut self.buckets[row.bucket()];
        // Sums do not depend on the order in which a server lists its documents.
        *bucket = bucket.wrapping_add(xxh3_128(&text));
        match row.deleted {
            true => self.deleted += 1,
            false => self.live += 1,
        }
        let Some(winner) = row.changes.first() else {
            return;
        };
        let seen = self.live + self.deleted;
        let place = match self.sample.len() < sample {
            true => {
                self.sample.push(Default::default());
                Some(self.sample.len() - 1)
            }
            // Reservoir sampling: the nth document takes a place with the chance that all before it
            // had.
            false => usize::try_from(fastrand::u64(..seen))
                .ok()
                .filter(|place| *place < sample),
        };
        if let Some(place) = place {
            self.sample[place] = (row.id.clone(), winner.rev.clone());
        }
    }
}

/// Compares the documents of a database on both servers, by their leaf revisions and, for `sample`
/// of them, by content.
///
/// # Errors
/// Errors of the servers.
pub async fn documents(
    source: &Server,
    target: &Server,
    db: &str,
    sample: usize,
) -> Result<Comparison, Error> {
    let (mut there, mut here) = (Sums::new(), Sums::new());
    let (a, b) = tokio::join!(
        rows(source, db, |row| there.add(&row, sample)),
        rows(target, db, |row| here.add(&row, 0)),
    );
    a?;
    b?;
    let mut comparison = Comparison {
        documents: there.live + there.deleted,
        differences: vec![],
    };
    for (what, there, here) in [
        ("documents", there.live, here.live),
        ("deleted documents", there.deleted, here.deleted),
    ] {
        if there != here {
            comparison.differences.push(format!(
                "{there} {what} at the source, {here} at the target"
            ));
        }
    }
    let differing: BTreeSet<usize> = (0..BUCKETS)
        .filter(|i| there.buckets[*i] != here.buckets[*i])
        .collect();
    if !differing.is_empty() {
        name_differing(source, target, db, differing, &mut comparison).await?;
    }
    for (id, rev) in &there.sample {
        if let Some(difference) = content(source, target, db, id, rev).await? {
            comparison.differences.push(difference);
        }
    }
    Ok(comparison)
}

async fn name_differing(
    source: &Server,
    target: &Server,
    db: &str,
    differing: BTreeSet<usize>,
    comparison: &mut Comparison,
) -> Result<(), Error> {
    let looked_at: BTreeSet<usize> = differing.iter().copied().take(BUCKETS_SHOWN_MAX).collect();
    let (mut there, mut here) = (BTreeMap::new(), BTreeMap::new());
    let collect = |into: &mut BTreeMap<String, String>, row: Row| {
        if looked_at.contains(&row.bucket()) {
            into.insert(row.id.clone(), row.leaves());
        }
    };
    let (a, b) = tokio::join!(
        rows(source, db, |row| collect(&mut there, row)),
        rows(target, db, |row| collect(&mut here, row)),
    );
    a?;
    b?;
    let ids: BTreeSet<&String> = there.keys().chain(here.keys()).collect();
    let mut count = 0;
    for id in ids {
        let difference = match (there.get(id), here.get(id)) {
            (Some(a), Some(b)) if a == b => continue,
            (Some(a), Some(b)) => format!("{id}: {a} at the source, {b} at the target"),
            (Some(a), None) => format!("{id}: {a} is missing at the target"),
            (None, Some(b)) => format!("{id}: {b} is at the target only"),
            (None, None) => continue,
        };
        count += 1;
        if count <= NAMED_MAX {
            comparison.differences.push(difference);
        }
    }
    let unseen = differing.len() > looked_at.len();
    if count > NAMED_MAX || unseen {
        let least = if unseen { "at least " } else { "" };
        comparison.differences.push(format!(
            "{least}{} more",
            command_line::counted(count.saturating_sub(NAMED_MAX), "differing documents")
        ));
    }
    Ok(())
}

/// Reads all leaf revisions of a database.
async fn rows(server: &Server, db: &str, mut each: impl FnMut(Row)) -> Result<(), Error> {
    let query = [("style", "all_docs")];
    let mut response = server.stream(&[db, "_changes"], &query).await?;
    let mut lines = Lines::default();
    let mut ended = false;
    while let Some(piece) = server.piece(&mut response).await? {
        lines.push(&piece);
        while let Some(line) = lines.next() {
            match row(&line) {
                Line::Row(row) if !OWN_DESIGNS.contains(&(db, &row.id)) => each(row),
                Line::End => ended = true,
                Line::Row(_) | Line::Other => {}
                Line::Strange => return Err(strange(server, db)),
            }
        }
        if lines.is_too_long() {
            return Err(strange(server, db));
        }
    }
    match row(&lines.rest) {
        Line::End => ended = true,
        Line::Row(_) | Line::Strange => return Err(strange(server, db)),
        Line::Other => {}
    }
    match ended {
        true => Ok(()),
        false => Err(Error::Unreachable {
            request: format!("GET /{db}/_changes"),
            reason: format!("the list of {} ended early", server.shown()),
        }),
    }
}

fn strange(server: &Server, db: &str) -> Error {
    Error::Strange {
        server: server.shown().to_owned(),
        request: format!("GET /{db}/_changes"),
    }
}

enum Line {
    Row(Row),
    /// `"last_seq"`, which comes after all rows.
    End,
    Other,
    Strange,
}

/// CouchDB, of whatever version, has each row of a feed on a line of its own.
fn row(line: &[u8]) -> Line {
    let line = line.trim_ascii();
    let line = line
        .strip_prefix(b"{\"results\":[")
        .unwrap_or(line)
        .trim_ascii();
    let line = line.strip_suffix(b",").unwrap_or(line);
    if line.starts_with(b"{\"seq\"") {
        return serde_json::from_slice(line).map_or(Line::Strange, Line::Row);
    }
    let tail = line.strip_prefix(b"]").unwrap_or(line);
    let tail = tail.strip_prefix(b",").unwrap_or(tail).trim_ascii();
    if tail.starts_with(b"\"last_seq\"") {
        return Line::End;
    }
    match tail {
        b"" => Line::Other,
        _ => Line::Strange,
    }
}

/// A row of a feed is shorter: an id and all leaf revisions.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Splits pieces into lines.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
    at: usize,
    /// Up to here there is no end of a line after `at`.
    searched: usize,
}

impl Lines {
    fn push(&mut self, piece: &[u8]) {
        self.drop_read();
        self.rest.extend_from_slice(piece);
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        let new = self.rest[self.searched..].iter();
        let Some(end) = new.copied().position(|b| b == b'\n') else {
            self.searched = self.rest.len();
            self.drop_read();
            return None;
        };
        let end = self.searched + end;
        let line = self.rest[self.at..end].to_vec();
        self.at = end + 1;
        self.searched = self.at;
        Some(line)
    }

    fn drop_read(&mut self) {
        self.rest.drain(..self.at);
        self.searched -= self.at;
        self.at = 0;
    }

    fn is_too_long(&self) -> bool {
        self.rest.len() - self.at > LINE_BYTES_MAX
    }
}

/// Returns the differences in one revision of a document: its members and the metadata of its
/// attachments.
async fn content(
    source: &Server,
    target: &Server,
    db: &str,
    id: &str,
    rev: &str,
) -> Result<Option<String>, Error> {
    let query = [("rev", rev)];
    let path = [db, id];
    let (a, b) = tokio::join!(source.get(&path, &query), target.get(&path, &query));
    let there = match a {
        Ok(doc) => doc,
        // Compacted or changed meanwhile: nothing can be said of it.
        Err(e) if e.is_status(404) => return Ok(None),
        Err(e) => return Err(e),
    };
    let here = match b {
        Ok(doc) => doc,
        Err(e) if e.is_status(404) => {
            return Ok(Some(format!("{id}: revision {rev} is not at the target")));
        }
        Err(e) => return Err(e),
    };
    let differing = differing_members(&there, &here);
    Ok((!differing.is_empty()).then(|| {
        format!(
            "{id}: revision {rev} has other content in {}",
            differing.join(", ")
        )
    }))
}

fn differing_members(a: &Value, b: &Value) -> Vec<String> {
    let names = |v: &Value| -> BTreeSet<String> {
        v.as_object()
            .map(|o| o.keys().cloned().collect())
            .unwrap_or_default()
    };
    names(a)
        .union(&names(b))
        .filter(|name| a.get(name) != b.get(name))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Row {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn sums_do_not_depend_on_order() {
        let rows = [
            r#"{"seq":"1-x","id":"a","changes":[{"rev":"1-a"},{"rev":"1-b"}]}"#,
            r#"{"seq":2,"id":"b","changes":[{"rev":"2-c"}],"deleted":true}"#,
        ];
        let (mut a, mut b) = (Sums::new(), Sums::new());
        for row in rows {
            a.add(&parse(row), 1);
        }
        b.add(&parse(rows[1]), 0);
        b.add(
            &parse(r#"{"id":"a","changes":[{"rev":"1-b"},{"rev":"1-a"}]}"#),
            0,
        );
        assert_eq!(a.buckets, b.buckets);
        assert_eq!((a.live, a.deleted, a.sample.len()), (1, 1, 1));
    }

    #[test]
    fn another_leaf_or_a_deletion_changes_the_sum() {
        let sum = |row: &str| {
            let mut sums = Sums::new();
            sums.add(&parse(row), 0);
            sums.buckets
        };
        let one = sum(r#"{"id":"a","changes":[{"rev":"1-a"}]}"#);
        assert_ne!(one, sum(r#"{"id":"a","changes":[{"rev":"1-b"}]}"#));
        assert_ne!(
            one,
            sum(r#"{"id":"a","changes":[{"rev":"1-a"},{"rev":"1-b"}]}"#)
        );
        assert_ne!(
            one,
            sum(r#"{"id":"a","changes":[{"rev":"1-a"}],"deleted":true}"#)
        );
    }

    #[test]
    fn lines_of_feeds_are_told_apart() {
        let is_row = |line: &str| matches!(row(line.as_bytes()), Line::Row(_));
        assert!(is_row(r#"{"seq":1,"id":"a","changes":[{"rev":"1-a"}]},"#));
        assert!(is_row(r#"{"results":[{"seq":1,"id":"a","changes":[]}"#));
        assert!(matches!(row(b"{\"results\":["), Line::Other));
        assert!(matches!(row(b"],"), Line::Other));
        assert!(matches!(row(b"\"last_seq\":3}"), Line::End));
        assert!(matches!(
            row(b"],\"last_seq\":\"3-x\",\"pending\":0}"),
            Line::End
        ));
        assert!(matches!(row(b"{\"error\":\"x\"}"), Line::Strange));
        assert!(matches!(row(b"{\"seq\":1,"), Line::Strange));
    }

    #[test]
    fn lines_come_whole_from_pieces() {
        let mut lines = Lines::default();
        let mut all = vec![];
        for piece in ["ab", "c\nd", "\n\n", "e"] {
            lines.push(piece.as_bytes());
            while let Some(line) = lines.next() {
                all.push(String::from_utf8(line).unwrap());
            }
        }
        assert_eq!(all, ["abc", "d", ""]);
        assert_eq!(lines.rest, b"e");
        // What has no end is searched once.
        for _ in 0..3 {
            lines.push(b"ff");
            assert_eq!(lines.next(), None);
            assert_eq!(lines.searched, lines.rest.len());
        }
        assert!(!lines.is_too_long());
        lines.push(&vec![b'g'; LINE_BYTES_MAX]);
        assert!(lines.next().is_none() && lines.is_too_long());
        lines.push(b"\n");
        assert_eq!(
            lines.next().map(|line| line.len()),
            Some(7 + LINE_BYTES_MAX)
        );
        assert!(!lines.is_too_long() && lines.rest.len() == lines.at);
    }
}
