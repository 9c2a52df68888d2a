//! Design functions over HTTP.
//!
//! Without a database: which function a path calls (`path`), the processing of its response
//! (`response`, with `object` for its JSON), the targets of rewrites (`rewrite`, `rules`). With one: `calls` answers by functions,
//! which `function_call` runs, and `lists` by those that read rows.

pub mod calls;
pub mod function_call;
pub mod lists;
pub mod object;
pub mod path;
pub mod response;
pub mod rewrite;
pub mod rules;

use crate::errors::ApiError;

/// The answer to a failure that a function or its server named, as CouchDB has it.
pub fn thrown(name: &str, reason: &str) -> ApiError {
    let status = statuses::of_name(name);
    ApiError::new(status, name.to_owned(), reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_knows_is_the_servers_fault() {
        let e = thrown("render_error", "function raised error: x");
        assert_eq!((e.status, &*e.error), (500, "render_error"));
        assert_eq!(thrown("not_acceptable", "x").status, 406);
        assert_eq!(
            thrown("method_not_allowed", "Update functions do not allow GET").status,
            405
        );
    }
}
