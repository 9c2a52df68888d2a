use crate::schema::FieldType;

/// An error of writing or searching an index.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The files could not be read or written.
    #[error("{0}")]
    Engine(String),
    /// An invalid field name.
    #[error("fields[{at}].name must match \"^\\$?[a-zA-Z][a-zA-Z0-9_]*$\"")]
    FieldName {
        /// The field's index in its document.
        at: usize,
    },
    /// An invalid value or option of a field.
    #[error("fields[{at}].{what}")]
    FieldValue {
        /// The field's index in its document.
        at: usize,
        /// The reason.
        what: String,
    },
    /// The field already has values of another type.
    #[error("field {name} is of type {new} not {known}")]
    FieldType {
        /// The field.
        name: String,
        /// The new type.
        new: FieldType,
        /// The type that it has.
        known: FieldType,
    },
    /// A sort by number on a text field.
    #[error("cannot sort string field as numeric field")]
    NotNumeric,
    /// A sort on a text field.
    #[error("can't sort on field {0}")]
    Unsortable(String),
    /// A range on a field without numbers.
    #[error("field {0} does not have numbers")]
    NoNumbers(String),
    /// Counts on a field without strings.
    #[error("field {0} does not have strings to count")]
    NoStrings(String),
    /// The query has too many clauses.
    #[error("maxClauseCount is set to {max}")]
    TooManyClauses {
        /// The maximum.
        max: usize,
    },
    /// The search ran out of time.
    #[error("the search exceeded its time limit: use fewer words, patterns or clauses")]
    TooLong,
    /// The search exceeded its memory limit.
    #[error(
        "the search needs more than {max} bytes of memory: request fewer hits or counts, or use fewer words or patterns"
    )]
    TooMuch {
        /// The limit, in bytes.
        max: usize,
    },
    /// All searches together exceeded the shared memory.
    #[error(
        "too many large searches run: try again, or request fewer hits or counts, or use fewer words or patterns"
    )]
    Busy,
    /// The documents have too many different fields.
    #[error("an index has at most {max} fields")]
    TooManyFields {
        /// The maximum.
        max: usize,
    },
    /// A document has too many different terms.
    #[error(
        "the words of a document take more than {max} bytes of memory with the names of their fields"
    )]
    TooManyTerms {
        /// The maximum.
        max: usize,
    },
    /// The names of the fields are too long.
    #[error("the names of an index's fields have at most {max} bytes together")]
    LongFieldNames {
        /// The maximum.
        max: usize,
    },
    /// An invalid regular expression.
    #[error("invalid regular expression: {0}")]
    Regex(String),
    /// The field has no positions.
    #[error("field \"{0}\" was indexed without position data; cannot run a phrase query")]
    NoPositions(String),
    /// A position in the order that does not belong to this query.
    #[error("the bookmark belongs to another query")]
    Bookmark,
}

impl Error {
    /// Returns whether the index cannot hold a document's fields, so that the document is to be
    /// left out.
    pub fn is_of_document(&self) -> bool {
        matches!(
            self,
            Error::FieldName { .. }
                | Error::FieldValue { .. }
                | Error::FieldType { .. }
                | Error::TooManyFields { .. }
                | Error::TooManyTerms { .. }
                | Error::LongFieldNames { .. }
        )
    }

    /// Returns whether the request caused the error.
    pub fn is_of_request(&self) -> bool {
        !matches!(self, Error::Engine(_) | Error::Busy)
    }
}

impl From<tantivy::TantivyError> for Error {
    fn from(e: tantivy::TantivyError) -> Error {
        Error::Engine(e.to_string())
    }
}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Error {
        Error::Engine(e.to_string())
    }
}
