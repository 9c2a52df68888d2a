//! Errors as `{error, {Code, Reason}}`.

use embedded::Error;
use rustler::{Atom, Encoder, Env, Term};

/// Declares atoms for words of errors. A word that is not here may come from a user's function,
/// and stays a binary, because a node never frees an atom.
macro_rules! codes {
    ($($code:ident)*) => {
        mod atoms {
            rustler::atoms! { error, $($code),* }
        }

        fn known(word: &str) -> Option<Atom> {
            match word {
                $(stringify!($code) => Some(atoms::$code()),)*
                _ => None,
            }
        }
    };
}

codes! {
    attachment_too_large bad_content_type bad_request busy cancelled closed compilation_error conflict
    database_name_too_long doc_validation file_exists forbidden forked illegal_database_name illegal_docid
    in_use insufficient_storage internal_server_error invalid_design_doc invalid_index missing missing_stub
    no_usable_index not_found not_implemented partition_overflow precondition_failed query_parse_error
    service_unavailable too_large unauthorized unknown_error unnamed_error
}

/// Returns `{error, {Code, Reason}}`: an atom, and a sentence in UTF-8.
pub fn term<'a>(env: Env<'a>, e: &Error) -> Term<'a> {
    (atoms::error(), pair(env, e)).encode(env)
}

fn pair<'a>(env: Env<'a>, e: &Error) -> (Term<'a>, Term<'a>) {
    (code_of(env, &e.error), e.reason.encode(env))
}

fn code_of<'a>(env: Env<'a>, word: &str) -> Term<'a> {
    known(word).map_or_else(|| word.encode(env), |code| code.encode(env))
}

/// Returns the code of an error: an atom, or the word itself if it is not one of the database's.
#[rustler::nif]
fn code<'a>(env: Env<'a>, word: &'a str) -> Term<'a> {
    code_of(env, word)
}

/// Returns the error of a fault in this library.
pub fn internal(reason: impl ToString) -> Error {
    Error::new(500, "internal_server_error", reason.to_string())
}
