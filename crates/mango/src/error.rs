use serde_json::Value;
use thiserror::Error;

/// Why a selector or a `fields` option is refused.
///
/// `Display` is the reason in the words of `_changes`; `_find` has other words for some of them
/// ([`SelectorError::find_error`], [`SelectorError::find_reason`]).
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SelectorError {
    /// The selector is not a JSON object.
    #[error("Selector error: expected a JSON object")]
    NotAnObject(Value),
    /// A name that begins with `$` and is no operator, or an operator whose operand CouchDB takes for no operator at all.
    #[error("Invalid operator: {0}")]
    InvalidOperator(String),
    /// An operator that other query languages have and this one has not.
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
        /// The last line of what the compiler says.
        cause: String,
    },
    /// A condition that stands at the root of the selector without a field.
    #[error("One or more conditions is missing a field name.")]
    MissingFieldName,
    /// A field name with an empty part, as in `a..b`.
    #[error("Invalid field name: {0}")]
    InvalidFieldName(String),
    /// `$text` below a field or another operator's element.
    #[error("$text is only allowed at the root of a selector")]
    TextBelowRoot,
    /// Conditions nested deeper than [`crate::DEPTH_MAX`].
    #[error("Selector is nested too deeply: more than {0} levels")]
    TooDeep(usize),
    /// More conditions than [`crate::CONDITIONS_MAX`].
    #[error("Selector is too large: more than {0} conditions")]
    TooManyConditions(usize),
    /// More regular expressions than [`crate::REGEXES_MAX`].
    #[error("Selector has too many regular expressions: more than {0}")]
    TooManyRegexes(usize),
    /// `fields` is not an array.
    #[error("Selector error: fields must be JSON array")]
    FieldsNotAnArray(Value),
    /// A member of `fields` is not a string.
    #[error("Invalid JSON for field spec: {0}")]
    InvalidField(Value),
}

impl SelectorError {
    /// The `error` member of the answer of `_changes`. The status is 400.
    pub fn error(&self) -> &'static str {
        "bad_request"
    }

    /// The `error` member of the answer of `_find`, `_explain` and `_index`. The status is 400.
    pub fn find_error(&self) -> &'static str {
        match self {
            Self::NotAnObject(_) => "invalid_selector_json",
            Self::InvalidOperator(_) => "invalid_operator",
            Self::UnsupportedOperator(_) => "not_supported",
            Self::BadArgument { .. } | Self::BadRegex { .. } => "bad_arg",
            Self::TextBelowRoot => "bad_field",
            Self::InvalidFieldName(_) => "invalid_field_name",
            Self::FieldsNotAnArray(_) => "invalid_fields",
            Self::InvalidField(_) => "invalid_field",
            Self::MissingFieldName
            | Self::TooDeep(_)
            | Self::TooManyConditions(_)
            | Self::TooManyRegexes(_) => "invalid_selector",
        }
    }

    /// The `reason` member of the answer of `_find`, `_explain` and `_index`.
    pub fn find_reason(&self) -> String {
        match self {
            Self::NotAnObject(value) => format!("Selector must be a JSON object, not: {value}"),
            Self::FieldsNotAnArray(value) => {
                format!("Fields must be an array of strings, not: {value}")
            }
            other => other.to_string(),
        }
    }
}
