use crate::schema::FieldType;

/// Why an index could not be written or asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Of the files.
    #[error("{0}")]
    Engine(String),
    /// A field's name is none.
    #[error("fields[{at}].name must match \"^\\$?[a-zA-Z][a-zA-Z0-9_]*$\"")]
    FieldName {
        /// Its place among the fields of its document.
        at: usize,
    },
    /// A field's value or option is not what it may be.
    #[error("fields[{at}].{what}")]
    FieldValue {
        /// Its place among the fields of its document.
        at: usize,
        /// What is wrong.
        what: String,
    },
    /// A field has values of another type already.
    #[error("field {name} is of type {new} not {known}")]
    FieldType {
        /// The field.
        name: String,
        /// What it is said to be.
        new: FieldType,
        /// What it is.
        known: FieldType,
    },
    /// An order by numbers of a field that has texts.
    #[error("cannot sort string field as numeric field")]
    NotNumeric,
    /// Fields of texts have no order.
    #[error("can't sort on field {0}")]
    Unsortable(String),
    /// Only doubles have ranges.
    #[error("field {0} does not have numbers")]
    NoNumbers(String),
    /// Only strings are counted.
    #[error("field {0} does not have strings to count")]
    NoStrings(String),
    /// A query has more parts than are looked for at a time.
    #[error("maxClauseCount is set to {max}")]
    TooManyClauses {
        /// How many there may be.
        max: usize,
    },
    /// The search was stopped.
    #[error("the search takes too long: ask for fewer words, patterns or parts")]
    TooLong,
    /// The search was stopped.
    #[error(
        "the search needs more than {max} bytes of memory: ask for fewer hits, counts, words or patterns"
    )]
    TooMuch {
        /// Bytes that it may take.
        max: usize,
    },
    /// Searches together take as much memory as they may.
    #[error(
        "too many large searches run: try again, or ask for fewer hits, counts, words or patterns"
    )]
    Busy,
    /// Documents have too many different fields.
    #[error("an index has at most {max} fields")]
    TooManyFields {
        /// How many there may be.
        max: usize,
    },
    /// A regular expression is none.
    #[error("invalid regular expression: {0}")]
    Regex(String),
    /// Positions are not kept of such a field, or of none.
    #[error("field \"{0}\" was indexed without position data; cannot run a query of a phrase")]
    NoPositions(String),
    /// A place in the order that is not one of this query's.
    #[error("the bookmark is not of this query")]
    Bookmark,
}

impl Error {
    /// Whether what a document gives to the index cannot be in it, so that the document is to be left out.
    pub fn is_of_document(&self) -> bool {
        matches!(
            self,
            Error::FieldName { .. }
                | Error::FieldValue { .. }
                | Error::FieldType { .. }
                | Error::TooManyFields { .. }
        )
    }

    /// Whether the one who asked could have known better.
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
