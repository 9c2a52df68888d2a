//! How the contents of attachments get into JSON texts: immediately, or when the text is sent.
//!
//! A row of a listing or a feed costs its metadata only: the text names each long content by a
//! placeholder, which the sender of the text replaces by the content, piece by piece
//! ([`LateContents::find`], [`LateContents::take`]).

use std::sync::Arc;

use document::{Attachment, AttachmentForm, StoredBody};
use memchr::memmem;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use storage::Contents;

use super::Base64Reader;
use crate::Error;

/// Contents of up to 32 KiB are read with their texts, since a late one takes a turn of a thread,
const READ_BYTES_MAX: u64 = 32 << 10;
/// but at most 64 KiB in one piece of a text.
const READ_IN_PIECE_BYTES_MAX: usize = 64 << 10;

/// A content whose stored bytes are at most this many is read whatever it decodes to.
const STORED_FREE_BYTES: u64 = 64 << 10;

/// A table for this number of contents is kept.
const KEPT_CONTENTS: usize = 16;

/// Bytes of a random key, as hexadecimal digits.
const KEY_BYTES: usize = 32;
/// Bytes of a number, as hexadecimal digits.
const NUMBER_BYTES: usize = 16;

/// How listings show the attachments of their documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShownAttachments {
    /// With their bytes, in Base64, in place of stubs: pieces of such a response are slow to make.
    pub bytes: bool,
    /// How gzipped ones are stored.
    pub encoding_info: bool,
}

impl ShownAttachments {
    /// Appends the member `_attachments` of a stored body, if it has any. `contents`: those of its
    /// document's shard.
    pub(crate) fn write(
        self,
        (contents, placement): (&Arc<Contents>, &ContentPlacement),
        stored: StoredBody<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let attachments = stored.attachments();
        let attachments = attachments.ok_or(storage::Error::Corrupt("attachments"))?;
        let shown = attachments
            .iter()
            .map(|attachment| (attachment, self.bytes));
        write_attachments(shown, self.encoding_info, (contents, placement), out)
    }
}

/// How the contents of attachments get into a text.
#[derive(Clone)]
pub enum ContentPlacement {
    /// In the text, in memory.
    Whole {
        /// Most bytes of Base64 in one document.
        bytes_max: u64,
    },
    /// Most by placeholders.
    Late(LateContents),
}

impl Default for ContentPlacement {
    fn default() -> ContentPlacement {
        ContentPlacement::Whole {
            bytes_max: u64::MAX,
        }
    }
}

impl ContentPlacement {
    /// Begins a piece of a text.
    pub(crate) fn begin_piece(&self) {
        if let ContentPlacement::Late(late) = self {
            late.0.state.lock().read_bytes = 0;
        }
    }

    /// Returns the number of the next placeholder.
    pub(crate) fn next_number(&self) -> u64 {
        match self {
            ContentPlacement::Whole { .. } => 0,
            ContentPlacement::Late(late) => late.0.state.lock().next,
        }
    }

    /// Forgets placeholders from `first` on that a text does not have, because a part of it was
    /// removed.
    pub(crate) fn forget_absent(&self, first: u64, text: &[u8]) {
        let ContentPlacement::Late(late) = self else {
            return;
        };
        let key = late.0.key.as_bytes();
        let present: FxHashSet<u64> = memmem::find_iter(text, key)
            .filter_map(|at| number_at(text, at + KEY_BYTES))
            .collect();
        let mut state = late.0.state.lock();
        for number in first..state.next {
            if !present.contains(&number) {
                state.contents.remove(&number);
            }
        }
        state.shrink();
    }
}

/// Appends the member `_attachments`, unless the list is empty: the wanted ones with their contents in
/// Base64, the others as stubs.
pub(crate) fn write_attachments<'a>(
    attachments: impl IntoIterator<Item = (&'a Attachment, bool)>,
    encoding_info: bool,
    (contents, placement): (&Arc<Contents>, &ContentPlacement),
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let mut separator = b",\"_attachments\":{".as_slice();
    let mut bytes = 0;
    for (attachment, is_wanted) in attachments {
        out.extend_from_slice(std::mem::replace(&mut separator, b","));
        if !is_wanted {
            attachment.write_json(AttachmentForm::Stub, encoding_info, out);
            continue;
        }
        let text = match placement {
            ContentPlacement::Whole { bytes_max } => {
                let left = bytes_max.saturating_sub(bytes);
                let whole = whole_text(contents, attachment, left)?;
                whole.ok_or(Error::RowTooLong(*bytes_max))?
            }
            ContentPlacement::Late(late) => late.text(contents, attachment)?,
        };
        bytes += text.len() as u64;
        attachment.write_json(AttachmentForm::Data(&text), encoding_info, out);
    }
    if separator == b"," {
        out.push(b'}');
    }
    Ok(())
}

/// Returns a content in Base64; `None` if it is longer than `bytes_max`, or if far more bytes are
/// stored: gzip of empty members, of which a text could have 1 GiB.
fn whole_text(
    contents: &Arc<Contents>,
    attachment: &Attachment,
    bytes_max: u64,
) -> Result<Option<String>, Error> {
    let stored_max = bytes_max
        .saturating_mul(2)
        .saturating_add(STORED_FREE_BYTES);
    if attachment.stored_length > stored_max {
        return Ok(None);
    }
    Base64Reader::open(contents, attachment)?.read_whole(bytes_max)
}

/// The contents that texts of one response name by placeholders. Clones share them.
#[derive(Clone)]
pub struct LateContents(Arc<Shared>);

struct Shared {
    /// Begins each placeholder. It is random, so that no client can write one, and never sent.
    key: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of the next placeholder.
    next: u64,
    /// Bytes of contents that are in the current piece of text: in Base64, or the stored ones if
    /// these are more.
    read_bytes: usize,
    contents: FxHashMap<u64, Base64Reader>,
}

impl State {
    /// Frees the table of many contents when the last one was taken: a feed may wait for long.
    fn shrink(&mut self) {
        if self.contents.is_empty() {
            self.contents.shrink_to(KEPT_CONTENTS);
        }
    }
}

impl LateContents {
    /// Memory of a content before its first piece is read, in bytes.
    pub const CONTENT_BYTES: usize = size_of::<Base64Reader>() + 160;

    /// No contents yet.
    ///
    /// # Errors
    /// A failure of the system's random numbers.
    pub fn new() -> Result<LateContents, Error> {
        let mut random = [0; KEY_BYTES / 2];
        getrandom::fill(&mut random).map_err(|e| Error::Internal(e.to_string()))?;
        Ok(LateContents(Arc::new(Shared {
            key: data_encoding::HEXLOWER.encode(&random),
            state: Mutex::default(),
        })))
    }

    fn placeholder(&self, number: u64) -> String {
        format!("{}{number:016x}", self.0.key)
    }

    /// Returns a short content, or the placeholder of another.
    fn text(&self, contents: &Arc<Contents>, attachment: &Attachment) -> Result<String, Error> {
        if attachment.is_short(READ_BYTES_MAX)
            && self.0.state.lock().read_bytes < READ_IN_PIECE_BYTES_MAX
        {
            let reader = Base64Reader::open(contents, attachment)?;
            if let Some(text) = reader.read_whole(READ_BYTES_MAX * 2)? {
                self.0.state.lock().read_bytes += text.len().max(attachment.stored_length as usize);
                return Ok(text);
            }
        }
        let reader = Base64Reader::open(contents, attachment)?;
        let mut state = self.0.state.lock();
        let number = state.next;
        state.next += 1;
        state.contents.insert(number, reader);
        drop(state);
        Ok(self.placeholder(number))
    }

    /// Searches a text for its first placeholder: returns how many bytes come before it, and its
    /// number. Without one these are the bytes before what may be the beginning of one.
    pub fn find(&self, text: &[u8]) -> (usize, Option<u64>) {
        let key = self.0.key.as_bytes();
        if let Some(at) = memmem::find(text, key) {
            return (at, number_at(text, at + KEY_BYTES));
        }
        let longest = text.len().min(KEY_BYTES - 1);
        let begins = (1..=longest)
            .rev()
            .find(|&n| text.ends_with(&key[..n]))
            .unwrap_or(0);
        (text.len() - begins, None)
    }

    /// Length of a placeholder, in bytes.
    pub const PLACEHOLDER_BYTES: usize = KEY_BYTES + NUMBER_BYTES;

    /// Takes the content of a placeholder.
    pub fn take(&self, number: u64) -> Option<Base64Reader> {
        let mut state = self.0.state.lock();
        let content = state.contents.remove(&number);
        state.shrink();
        content
    }

    /// Returns how many contents are still to be taken.
    pub fn len(&self) -> usize {
        self.0.state.lock().contents.len()
    }

    /// Returns whether no content is to be taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads the number of a placeholder.
fn number_at(text: &[u8], at: usize) -> Option<u64> {
    let digits = std::str::from_utf8(text.get(at..at + NUMBER_BYTES)?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_found_wherever_the_text_is_cut() {
        let late = LateContents::new().expect("random numbers");
        let text = format!("prior:{}after", late.placeholder(17)).into_bytes();
        let whole = 6 + LateContents::PLACEHOLDER_BYTES;
        for cut in 0..=text.len() {
            let (before, number) = late.find(&text[..cut]);
            assert_eq!(before, cut.min(6), "{cut}");
            assert_eq!(number, (cut >= whole).then_some(17), "{cut}");
        }
        let other = LateContents::new().expect("random numbers");
        assert_eq!(other.find(b"no placeholder"), (14, None));
    }
}
