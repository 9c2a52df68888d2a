//! Documents gathered into requests, on the reading thread.

use tokio::sync::mpsc;

use crate::collector::Collector;
use crate::document::{Document, Item};

/// From the reading thread to the writer.
#[derive(Debug)]
pub(crate) enum Message {
    Batch(Batch),
    Refused { label: String, reason: String },
    Note(String),
}

/// Documents of one `_bulk_docs` request.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) documents: Vec<Document>,
    pub(crate) bytes: usize,
    /// The documents keep their revisions: `new_edits` is false.
    pub(crate) with_revs: bool,
}

/// Fills batches and sends them when they are full. Sending waits while the writer is busy, which
/// bounds the memory.
pub(crate) struct Batcher {
    docs_max: usize,
    bytes_max: usize,
    sender: mpsc::Sender<Message>,
    new: Batch,
    with_revs: Batch,
    wanted: bool,
}

impl Batcher {
    pub(crate) fn new(docs_max: usize, bytes_max: usize, sender: mpsc::Sender<Message>) -> Self {
        Self {
            docs_max,
            bytes_max,
            sender,
            new: Batch::default(),
            with_revs: empty(true),
            wanted: true,
        }
    }

    /// Sends the gathered documents.
    pub(crate) fn flush(&mut self) {
        for with_revs in [false, true] {
            self.send_batch(with_revs);
        }
    }

    fn batch(&mut self, with_revs: bool) -> &mut Batch {
        if with_revs {
            &mut self.with_revs
        } else {
            &mut self.new
        }
    }

    fn add(&mut self, document: Document) {
        let with_revs = document.has_rev;
        let bytes = document.text.len();
        let (docs_max, bytes_max) = (self.docs_max, self.bytes_max);
        let batch = self.batch(with_revs);
        if !batch.documents.is_empty() && batch.bytes + bytes > bytes_max {
            self.send_batch(with_revs);
        }
        let batch = self.batch(with_revs);
        batch.bytes += bytes;
        batch.documents.push(document);
        if batch.documents.len() >= docs_max {
            self.send_batch(with_revs);
        }
    }

    fn send_batch(&mut self, with_revs: bool) {
        let batch = std::mem::replace(self.batch(with_revs), empty(with_revs));
        if !batch.documents.is_empty() {
            self.send(Message::Batch(batch));
        }
    }

    fn send(&mut self, message: Message) {
        self.wanted &= self.sender.blocking_send(message).is_ok();
    }
}

fn empty(with_revs: bool) -> Batch {
    Batch {
        with_revs,
        ..Batch::default()
    }
}

impl Collector for Batcher {
    fn collect(&mut self, item: Item) -> bool {
        match item {
            Item::Document(document) => self.add(document),
            Item::Refused { label, reason } => self.send(Message::Refused { label, reason }),
            Item::NotADocument => {}
        }
        self.wanted
    }

    fn note(&mut self, text: String) {
        self.send(Message::Note(text));
    }
}

impl Batch {
    /// Returns the body of the request.
    pub(crate) fn body(documents: &[Document], with_revs: bool) -> Vec<u8> {
        let bytes: usize = documents
            .iter()
            .map(|document| document.text.len() + 1)
            .sum();
        let mut body = Vec::with_capacity(bytes + 40);
        if with_revs {
            body.extend_from_slice(br#"{"new_edits":false,"docs":["#);
        } else {
            body.extend_from_slice(br#"{"docs":["#);
        }
        for (at, document) in documents.iter().enumerate() {
            if at > 0 {
                body.push(b',');
            }
            body.extend_from_slice(document.text.as_bytes());
        }
        body.extend_from_slice(b"]}");
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str, has_rev: bool) -> Item {
        Item::Document(Document {
            text: text.to_owned(),
            label: "a".to_owned(),
            has_rev,
        })
    }

    #[test]
    fn batches_end_at_either_limit_and_keep_revisions_apart() {
        let (sender, mut messages) = mpsc::channel(16);
        let mut batcher = Batcher::new(2, 10, sender);
        for (text, has_rev) in [
            ("{}", false),
            ("{  }", true),
            ("{}", false),
            ("{}", false),
            ("{       }", false),
        ] {
            assert!(batcher.collect(document(text, has_rev)));
        }
        batcher.flush();
        drop(batcher);
        let mut sizes = Vec::new();
        while let Some(Message::Batch(batch)) = messages.blocking_recv() {
            sizes.push((batch.documents.len(), batch.with_revs));
        }
        assert_eq!(sizes, [(2, false), (1, false), (1, false), (1, true)]);
    }

    #[test]
    fn reading_stops_when_nobody_writes() {
        let (sender, messages) = mpsc::channel(1);
        drop(messages);
        let mut batcher = Batcher::new(1, 10, sender);
        assert!(!batcher.collect(document("{}", false)));
    }
}
