/// Why a map function gets whole documents. The text is shown to users.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the source is longer than {max} bytes")]
    TooLong { max: usize },
    #[error("the source cannot be read: {0}")]
    Syntax(String),
    #[error("the source is not one function expression")]
    NotAFunction,
    #[error("the function is async or a generator")]
    Suspends,
    #[error("the first parameter is a rest parameter or an array pattern")]
    Parameter,
    #[error("doc is passed to a function")]
    Passed,
    #[error("doc is returned or thrown")]
    Returned,
    #[error("doc is stored or put into another value")]
    Stored,
    #[error("doc is spread, copied or iterated")]
    Iterated,
    #[error("a member of doc is chosen at run time")]
    DynamicMember,
    #[error("a method is called on doc")]
    MethodOfDoc,
    #[error("doc, or a part of it, is written to")]
    Written,
    #[error("doc is declared again or assigned to")]
    Redeclared,
    #[error("doc is used in a way that is not followed")]
    NotFollowed,
    #[error("emit is declared or assigned to")]
    Emit,
    #[error("{0} is used")]
    Uses(&'static str),
    #[error("the function may change built-in objects: {0}")]
    Builtins(&'static str),
    #[error("the function is too complex to follow")]
    TooComplex,
    #[error("a library module may change built-in objects or cannot be read")]
    Library,
}
