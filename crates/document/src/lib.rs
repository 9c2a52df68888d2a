//! The document model of CouchDB: ids, revisions, revision trees, JSON bodies and revision hashing.
//!
//! Nothing here does I/O, and nothing here is asynchronous.
//!
//! | module | answers |
//! |---|---|
//! | [`id`] | which strings are document ids? |
//! | [`rev`] | what is a revision, and how is it written? |
//! | [`tree`] | which revisions of a document are known, which one wins? |
//! | [`json`] | is this text JSON, what is its normal form, what does the document in it say? |
//! | [`attachment`] | what does a stored document know of its attachments? |
//! | [`multipart`] | how do a document and its attachments travel in one body? |
//! | [`collation`] | in which order do a view's keys stand, and how is that order one of bytes? |
//! | [`term`] | which revision id does an edit get? |
//! | [`uuid`] | which id does a document get that came without one? |
//! | [`varint`] | how are numbers stored? |
//! | [`fuzz`] | what must hold for any bytes? |

pub mod attachment;
pub mod collation;
pub mod fuzz;
pub mod id;
pub mod json;
pub mod multipart;
pub mod rev;
pub mod term;
mod text_list;
pub mod tree;
pub mod uuid;
pub mod varint;

pub use attachment::{Attachment, ContentId, Encoding, Shown, StoredBody};
pub use collation::Collator;
pub use id::{DocId, IdError};
pub use json::{
    BulkDocs, DocError, EditDoc, body_term, has_negative_zero, normalise, parse_bulk_docs,
    parse_document, parse_some_bulk_docs, with_members, write_json_string,
};
pub use rev::{Rev, RevError, RevHash, RevRef};
pub use term::revision_id;
pub use text_list::TextList;
pub use tree::{
    BulkTree, Corrupt, Grafted, Leaf, Merged, NodeView, PATH_IDS_MAX, RevPath, RevTree, Revision,
    TreeLimits, weight,
};
pub use uuid::{UuidAlgorithm, UuidGenerator};
