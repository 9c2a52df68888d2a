//! Why a function is not followed.

/// Why a map function gets whole documents. The text is shown to users.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// More than 64 KiB.
    #[error("the source is longer than {max} bytes")]
    TooLong {
        /// The maximum.
        max: usize,
    },
    /// The parser refuses it: the reason.
    #[error("the source cannot be read: {0}")]
    Syntax(String),
    /// Statements, directives, or an expression of another kind.
    #[error("the source is not one function expression")]
    NotAFunction,
    /// Accesses after `await` or `yield` are not seen.
    #[error("the function is async or a generator")]
    Suspends,
    /// No variable is the document.
    #[error("the first parameter is a rest parameter or an array pattern")]
    Parameter,
    /// The accesses of the other function are unknown.
    #[error("doc is passed to a function")]
    Passed,
    /// Out of sight.
    #[error("doc is returned or thrown")]
    Returned,
    /// In a member, an element or a closure of something else.
    #[error("doc is stored or put into another value")]
    Stored,
    /// All members may matter.
    #[error("doc is spread, copied or iterated")]
    Iterated,
    /// `doc[x]`.
    #[error("a member of doc is chosen at run time")]
    DynamicMember,
    /// The method sees the document as `this`.
    #[error("a method is called on doc")]
    MethodOfDoc,
    /// The function needs a document that it can change.
    #[error("doc, or a part of it, is written to")]
    Written,
    /// The name may have another meaning.
    #[error("doc is declared again or assigned to")]
    Redeclared,
    /// Nothing is known of such a use.
    #[error("doc is used in a way that is not followed")]
    NotFollowed,
    /// Rows may go elsewhere.
    #[error("emit is declared or assigned to")]
    Emit,
    /// Something that sees more than its arguments, as `eval` does.
    #[error("{0} is used")]
    Uses(&'static str),
    /// A changed prototype may see the document.
    #[error("the function may change built-in objects: {0}")]
    Builtins(&'static str),
    /// Too many variables, or too deeply nested.
    #[error("the function is too complex to follow")]
    TooComplex,
    /// A module of `views.lib`, as for `Builtins`.
    #[error("a library module may change built-in objects or cannot be read")]
    Library,
}

impl Refusal {
    /// Returns whether the parser does not read the source as one function.
    pub fn is_syntax(&self) -> bool {
        matches!(self, Refusal::Syntax(_))
    }
}
