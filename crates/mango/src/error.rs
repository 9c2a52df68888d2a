use serde_json::Value;
use thiserror::Error;

use crate::text::TextKind;

/// The reason why a selector or a `fields` option is refused.
///
/// `Display` is the reason in the words of `_changes`; `_find` has other words for some of them
/// ([`SelectorError::find_error`], [`SelectorError::find_reason`]).
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SelectorError {
    /// The selector is not a JSON object.
    #[error("Selector error: expected a JSON object")]
    NotAnObject(Value),
    /// A name that starts with `$` and is not an operator, or an operator whose operand CouchDB
    /// does not accept as one.
    #[error("Invalid operator: {0}")]
    InvalidOperator(String),
    /// An operator of other query languages that does not exist in this one.
    #[error("Operator {0} is not supported")]
    UnsupportedOperator(String),
    /// The operand of an operator has the wrong type or value.
    #[error("Bad argument for operator {operator}: {argument}")]
    BadArgument {
        /// The operator, with its `$`.
        operator: &'static str,
        /// Its operand.
        argument: Value,
    },
    /// A regular expression that cannot be compiled, or is too large.
    #[error("Bad argument for operator $regex: {pattern}: {cause}")]
    BadRegex {
        /// The regular expression, as JSON.
        pattern: Value,
        /// The reason.
        cause: String,
    },
    /// A condition without a field at the root of the selector.
    #[error("One or more conditions is missing a field name.")]
    MissingFieldName,
    /// A field name with an empty part, as in `a..b`.
    #[error("Invalid field name: {0}")]
    InvalidFieldName(String),
    /// A field name that exceeds the maximum length: the maximum, in bytes.
    #[error("Field name is longer than {0} bytes")]
    LongFieldName(usize),
    /// `$text` below a field or another operator's element.
    #[error("$text is only allowed at the root of a selector")]
    TextBelowRoot,
    /// More `$text` operators than [`crate::TextHits::TEXTS_MAX`].
    #[error("Selector has too many $text operators: more than {0}")]
    TooManyTexts(usize),
    /// `$text` operators whose texts together have more bytes than [`crate::TEXTS_BYTES_MAX`].
    #[error("Texts of $text operators are longer than {0} bytes together")]
    LongTexts(usize),
    /// Conditions nested deeper than [`crate::Limits`] allow, or names with more parts.
    #[error("Selector is nested too deeply: more than {0} levels")]
    TooDeep(usize),
    /// More conditions than [`crate::Limits`] allow.
    #[error("Selector is too large: more than {0} conditions")]
    TooManyConditions(usize),
    /// More regular expressions than [`crate::Limits`] allow.
    #[error("Selector has too many regular expressions: more than {0}")]
    TooManyRegexes(usize),
    /// Regular expressions that take more memory together than [`crate::Limits`] allow.
    #[error("Regular expressions of the selector take more than {0} bytes together")]
    LargeRegexes(usize),
    /// Field names with more parts in total than allowed.
    #[error("Field names have more than {0} parts together")]
    TooManyParts(usize),
    /// `fields` is not an array.
    #[error("Selector error: fields must be JSON array")]
    FieldsNotAnArray(Value),
    /// More names in `fields` than allowed.
    #[error("Selector error: fields must be at most {0}")]
    TooManyFields(usize),
    /// A member of `fields` is not a string.
    #[error("Invalid JSON for field spec: {0}")]
    InvalidField(Value),
}

impl SelectorError {
    /// Returns the `error` member of the response of `_changes`. The status is 400.
    pub fn error(&self) -> &'static str {
        "bad_request"
    }

    /// Returns the `error` member of the response of `_find`, `_explain` and `_index`. The status
    /// is 400.
    pub fn find_error(&self) -> &'static str {
        match self {
            Self::NotAnObject(_) => "invalid_selector_json",
            Self::InvalidOperator(_) => "invalid_operator",
            Self::UnsupportedOperator(_) => "not_supported",
            Self::BadArgument { .. } | Self::BadRegex { .. } => "bad_arg",
            Self::TextBelowRoot => "bad_field",
            Self::InvalidFieldName(_) | Self::LongFieldName(_) => "invalid_field_name",
            Self::FieldsNotAnArray(_) | Self::TooManyFields(_) => "invalid_fields",
            Self::InvalidField(_) => "invalid_field",
            Self::MissingFieldName
            | Self::TooDeep(_)
            | Self::TooManyParts(_)
            | Self::TooManyConditions(_)
            | Self::TooManyRegexes(_)
            | Self::LargeRegexes(_)
            | Self::TooManyTexts(_)
            | Self::LongTexts(_) => "invalid_selector",
        }
    }

    /// Returns the `reason` member of the response of `_find`, `_explain` and `_index`.
    pub fn find_reason(&self) -> String {
        match self {
            Self::NotAnObject(value) => format!("Selector must be a JSON object, not: {value}"),
            Self::UnsupportedOperator(name) => format!("Unsupported operator: {name}"),
            Self::FieldsNotAnArray(value) => {
                format!("Fields must be an array of strings, not: {value}")
            }
            Self::TooManyFields(max) => format!("Fields must be at most {max}"),
            other => other.to_string(),
        }
    }
}

/// The reason why a query or an index is refused, in CouchDB's words. The status is 400 unless
/// [`FindError::status`] differs.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum FindError {
    /// An invalid selector, or `fields`.
    #[error("{}", .0.find_reason())]
    Selector(#[from] SelectorError),
    /// More fields of an index than [`crate::index::INDEX_FIELDS_MAX`].
    #[error("Index has too many fields: more than {0}")]
    TooManyIndexFields(usize),
    /// A required member is missing.
    #[error("Missing required key: {0}")]
    MissingKey(&'static str),
    /// The body, or a member that must be an object, is not one.
    #[error("Request body must be a JSON object")]
    NotAnObject,
    /// A member nested too deeply.
    #[error("Value of {0} is nested too deeply")]
    NestedTooDeeply(String),
    /// The members besides the selector or the index have more values than this.
    #[error("The options have more than {0} JSON values")]
    TooManyValues(usize),
    /// An unknown member.
    #[error("Invalid key {0} for this request.")]
    InvalidKey(String),
    /// Not a string.
    #[error("Invalid string: {0}")]
    InvalidString(Value),
    /// An empty name.
    #[error("Index name or ddoc cannot be empty string")]
    EmptyString,
    /// Neither true nor false.
    #[error("Invalid boolean value: {0}")]
    InvalidBoolean(Value),
    /// Not a natural number.
    #[error("{0} is not an integer greater than or equal to zero")]
    InvalidNatural(Value),
    /// Not a positive integer.
    #[error("{0} is not an integer greater than zero")]
    InvalidPositive(Value),
    /// Neither `ok` nor false.
    #[error("Invalid value for stale: {0}")]
    InvalidStale(Value),
    /// Not a list of fields.
    #[error("Sort must be an array of sort specs, not: {0}")]
    InvalidSort(Value),
    /// Not a field, or one with an invalid direction.
    #[error("Invalid sort field: {0}")]
    InvalidSortField(Value),
    /// More fields than [`crate::text::SORT_FIELDS_MAX`] with a text index.
    #[error("Sort has too many fields: more than {0}")]
    TooManySortFields(usize),
    /// Both directions.
    #[error("Sorts currently only support a single direction for all fields.")]
    MixedSort,
    /// Not a name of an index.
    #[error("Invalid index name: {0}")]
    InvalidIndexName(Value),
    /// An invalid bookmark, or one of another query.
    #[error("Invalid bookmark value: {0}")]
    InvalidBookmark(Value),
    /// No index has the sort order.
    #[error("No {}index exists for this sort, try indexing by the sort fields.", .0)]
    NoUsableIndex(&'static str),
    /// `allow_fallback` is false and `use_index` names no usable index.
    #[error("{0}")]
    NoFallback(String),
    /// `partition` in a database that is not partitioned.
    #[error("`partition` parameter is not supported on this db")]
    NotPartitioned,
    /// The definition is not an object.
    #[error("JSON indexes must be an object, not: {0}")]
    InvalidIndexJson(Value),
    /// The definition of a text index is not an object.
    #[error("Text indexes must be an object, not: {0}")]
    InvalidIndexText(Value),
    /// Invalid fields of a text index.
    #[error("Text Index field definitions are invalid: {0}")]
    InvalidFieldsDefinition(Value),
    /// Several usable text indexes of this type.
    #[error("You must specify an index with the `use_index` parameter.")]
    SeveralTextIndexes(TextKind),
    /// The type of a sort field is unknown.
    #[error(
        "Unspecified or ambiguous sort type. Try appending :number or :string to the sort field. {0}"
    )]
    TextSort(String),
    /// An invalid type.
    #[error("Invalid type for index: {0}")]
    InvalidIndexType(String),
    /// `partitioned` is neither true nor false.
    #[error("Invalid value for partitioned: {0}")]
    InvalidPartitioned(Value),
    /// The design document has the opposite option.
    #[error("Requested partitioned option does not match existing value on design document {0}")]
    PartitionedMismatch(String),
    /// The design document contains other functions.
    #[error("Existing design doc has an invalid language: {0}")]
    DesignLanguage(Value),
    /// Not a list of ids.
    #[error("Bulk Delete requires an array of non-null docids. Docids: {0}")]
    InvalidBulkDocs(Value),
    /// Invalid `limit` or `skip` of the list of indexes.
    #[error("Index parameter ranges: limit > 1, skip > 0")]
    InvalidListParams,
    /// An invalid `aggregate`.
    #[error("{0}")]
    InvalidAggregate(String),
    /// More groups or values than allowed.
    #[error("{0}")]
    AggregateTooLarge(String),
    /// All aggregates together exceed the memory budget.
    #[error("{0}")]
    AggregatesFull(String),
    /// No index can be used, and a scan of all documents would be too long.
    #[error(
        "No index matches this query, and scanning all {documents} documents would exceed [mango] scan_limit ({limit}). Create an index for it."
    )]
    ScanRefused {
        /// Number of documents to scan.
        documents: u64,
        /// The setting.
        limit: u64,
    },
}

impl FindError {
    /// The `error` member of the answer.
    pub fn error(&self) -> &'static str {
        match self {
            Self::Selector(e) => e.find_error(),
            Self::MissingKey(_) => "missing_required_key",
            Self::NotAnObject | Self::NestedTooDeeply(_) | Self::TooManyValues(_) => "bad_request",
            Self::InvalidKey(_) => "invalid_key",
            Self::InvalidString(_) => "invalid_string",
            Self::EmptyString => "invalid_empty_string",
            Self::InvalidBoolean(_) => "invalid_boolean",
            Self::InvalidNatural(_) => "invalid_non_neg_integer",
            Self::InvalidPositive(_) => "invalid_pos_integer",
            Self::InvalidStale(_) => "invalid_ok_or_false_value",
            Self::InvalidSort(_) => "invalid_sort_json",
            Self::InvalidSortField(_) | Self::TooManySortFields(_) => "invalid_sort_field",
            Self::MixedSort => "unsupported_mixed_sort",
            Self::InvalidIndexName(_) => "invalid_index_name",
            Self::InvalidBookmark(_) => "invalid_bookmark",
            Self::NoUsableIndex(_) => "no_usable_index",
            Self::NoFallback(_) | Self::InvalidIndexJson(_) | Self::InvalidIndexType(_) => {
                "invalid_index"
            }
            Self::InvalidIndexText(_) | Self::TooManyIndexFields(_) => "invalid_index",
            Self::InvalidFieldsDefinition(_) => "invalid_index_fields_definition",
            Self::SeveralTextIndexes(TextKind::Text) => "multiple_text_indexes",
            Self::SeveralTextIndexes(TextKind::Nouveau) => "multiple_nouveau_indexes",
            Self::TextSort(_) => "text_sort_error",
            Self::NotPartitioned => "query_parse_error",
            Self::InvalidPartitioned(_) => "invalid_partitioned_value",
            Self::PartitionedMismatch(_) => "invalid_partitioned_option",
            Self::DesignLanguage(_) => "invalid_ddoc_lang",
            Self::InvalidBulkDocs(_) => "invalid_bulk_docs",
            Self::InvalidListParams => "invalid_list_index_params",
            Self::InvalidAggregate(_) => "invalid_aggregate",
            Self::AggregateTooLarge(_) => "aggregate_too_large",
            Self::AggregatesFull(_) => "service_unavailable",
            Self::ScanRefused { .. } => "scan_refused",
        }
    }
}
