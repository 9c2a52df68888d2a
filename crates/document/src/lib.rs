//! The document model of CouchDB: ids, revisions, revision trees, JSON bodies and revision hashing.
//!
//! Nothing here does I/O, and nothing here is asynchronous.
//!
//! | module | answers |
//! |---|---|
//! | [`access`] | Who may read and write a document? |
//! | [`id`] | Which strings are document ids? |
//! | [`rev`] | What is a revision, and how is it written? |
//! | [`tree`] | Which revisions does a document have, and which one wins? |
//! | [`json`] | Is a text JSON, what is its normal form, and which document does it contain? |
//! | [`attachment`] | What does a stored document contain about its attachments? |
//! | [`multipart`] | How are a document and its attachments sent in one body? |
//! | [`collation`] | What is the order of a view's keys, and how does it become an order of bytes? |
//! | [`term`] | Which revision id does an edit get? |
//! | [`uuid`] | Which id does a document without one get? |
//! | [`period_s`] | How long is a period such as `30_days`? |
//! | [`process_ids`] | Which ids does a process give its documents itself? |
//! | [`varint`] | How are numbers stored? |
//! | [`fuzz`] | Which properties hold for any bytes? |

pub mod access;
pub mod attachment;
pub mod collation;
pub mod fuzz;
pub mod id;
pub mod json;
pub mod multipart;
mod period;
pub mod process_ids;
pub mod rev;
pub mod term;
mod text_list;
pub mod tree;
pub mod uuid;
pub mod varint;

pub use access::{
    ACCESS_BYTES_MAX, ACCESS_MEMBER, ACCESS_PRINCIPALS_MAX, AccessEdit, AccessError, AccessSet,
    AccessVerdict, DocAccess, EditBasis, Grant, GrantMove, IndexReaders, LeafAccess,
    PRINCIPAL_BYTES_MAX, Principal, Principals, Shown, nearest_known,
};
pub use attachment::{Attachment, AttachmentForm, ContentId, Encoding, StoredBody};
pub use collation::Collator;
pub use id::{DocId, ID_LENGTH_MAX, IdError};
pub use json::{
    BulkDocs, DocError, EditDoc, body_term, has_negative_zero, normalise, parse_bulk_docs,
    parse_document, parse_some_bulk_docs, with_members, write_json_string,
};
pub use period::period_s;
pub use process_ids::{ID_PREFIX_LENGTH_MAX, PrefixError, ProcessIds, check_id_prefix};
pub use rev::{Rev, RevError, RevHash, RevRef};
pub use term::revision_id;
pub use text_list::TextList;
pub use tree::{
    BulkTree, CorruptTree, GraftResult, Leaf, MergeResult, NodeView, PATH_IDS_MAX, RevPath,
    RevTree, Revision, TreeLimits, weight,
};
pub use uuid::{UuidAlgorithm, UuidFormat, UuidGenerator};
