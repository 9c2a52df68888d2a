//! Which design function a path calls.

use database::DesignDoc;

use crate::errors::ApiError;
use node::require_function;

/// A call of a design function, from `/{db}/_design/{ddoc}/_…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Show {
        name: String,
        id: Option<String>,
    },
    Update {
        name: String,
        id: Option<String>,
    },
    List {
        name: String,
        /// The design document of the view, when it is another.
        ddoc: Option<String>,
        /// A view, or `_all_docs`.
        view: String,
    },
    Rewrite {
        path: Vec<String>,
    },
}

impl Call {
    /// Reads the segments after `_show`, `_list`, `_update` or `_rewrite`. Slashes in a document's id need no encoding.
    pub fn parse(method: &str, part: &str, path: Vec<String>) -> Result<Call, ApiError> {
        match part {
            "_show" => {
                let (name, id) = name_and_id("show_error", &path)?;
                Ok(Call::Show { name, id })
            }
            "_update" => {
                let (name, id) = name_and_id("update_error", &path)?;
                Ok(Call::Update { name, id })
            }
            "_list" => list(method, path),
            _ => Ok(Call::Rewrite { path }),
        }
    }

    /// The function's place in its design document.
    pub fn function(&self) -> Vec<&str> {
        match self {
            Call::Show { name, .. } => vec!["shows", name],
            Call::Update { name, .. } => vec!["updates", name],
            Call::List { name, .. } => vec!["lists", name],
            Call::Rewrite { .. } => vec!["rewrites"],
        }
    }

    /// Refuses a function that its design document does not have.
    pub fn check(&self, ddoc: &DesignDoc) -> Result<(), ApiError> {
        Ok(require_function(ddoc, &self.function())?)
    }
}

fn invalid(error: &'static str) -> ApiError {
    ApiError::new(404, error, "Invalid path.")
}

fn name_and_id(error: &'static str, rest: &[String]) -> Result<(String, Option<String>), ApiError> {
    let (name, id) = rest.split_first().ok_or_else(|| invalid(error))?;
    Ok((name.clone(), (!id.is_empty()).then(|| id.join("/"))))
}

fn list(method: &str, rest: Vec<String>) -> Result<Call, ApiError> {
    if !matches!(method, "GET" | "HEAD" | "POST" | "OPTIONS") {
        return Err(ApiError::method_not_allowed("GET,POST,HEAD"));
    }
    let mut rest = rest.into_iter();
    let (name, ddoc, view) = match (rest.next(), rest.next(), rest.next(), rest.next()) {
        (Some(name), Some(view), None, None) => (name, None, view),
        (Some(name), ddoc, Some(view), None) => (name, ddoc, view),
        _ => return Err(invalid("list_error")),
    };
    Ok(Call::List { name, ddoc, view })
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::segments;
    use serde_json::{Value, json};

    fn parse(method: &str, path: &str) -> Result<Call, ApiError> {
        let texts = segments(path)
            .into_iter()
            .map(|s| String::from_utf8(s).unwrap());
        let mut texts = texts.skip(3);
        let part = texts.next().unwrap();
        Call::parse(method, &part, texts.collect())
    }

    fn refused(method: &str, path: &str) -> (u16, String, String) {
        let e = parse(method, path).unwrap_err();
        (e.status, e.error.into_owned(), e.reason.into_owned())
    }

    #[test]
    fn documents_of_shows_and_updates_may_have_slashes() {
        let name = || "s".to_owned();
        let id = |id: &str| Some(id.to_owned());
        let cases = [
            (
                "/db/_design/d/_show/s",
                Call::Show {
                    name: name(),
                    id: None,
                },
            ),
            (
                "/db/_design/d/_show/s/a/b",
                Call::Show {
                    name: name(),
                    id: id("a/b"),
                },
            ),
            (
                "/db/_design/d/_update/s/a%2Fb",
                Call::Update {
                    name: name(),
                    id: id("a/b"),
                },
            ),
            (
                "/db/_design/d/_update/s/_design/x",
                Call::Update {
                    name: name(),
                    id: id("_design/x"),
                },
            ),
        ];
        for (path, call) in cases {
            assert_eq!(parse("PUT", path).unwrap(), call, "{path}");
        }
        let gone = |error: &str| (404, error.to_owned(), "Invalid path.".to_owned());
        assert_eq!(refused("GET", "/db/_design/d/_show/"), gone("show_error"));
        assert_eq!(
            refused("PUT", "/db/_design/d/_update"),
            gone("update_error")
        );
    }

    #[test]
    fn a_list_may_be_over_another_design_documents_view() {
        let list = |ddoc: Option<&str>, view: &str| Call::List {
            name: "l".to_owned(),
            ddoc: ddoc.map(str::to_owned),
            view: view.to_owned(),
        };
        assert_eq!(
            parse("GET", "/db/_design/d/_list/l/v").unwrap(),
            list(None, "v")
        );
        assert_eq!(
            parse("POST", "/db/_design/d/_list/l/e/v").unwrap(),
            list(Some("e"), "v")
        );
        for path in [
            "/db/_design/d/_list",
            "/db/_design/d/_list/l",
            "/db/_design/d/_list/l/e/v/x",
        ] {
            assert_eq!(
                refused("GET", path),
                (404, "list_error".to_owned(), "Invalid path.".to_owned())
            );
        }
        let (status, error, reason) = refused("PUT", "/db/_design/d/_list/l");
        assert_eq!((status, error.as_str()), (405, "method_not_allowed"));
        assert_eq!(reason, "Only GET,POST,HEAD allowed");
    }

    #[test]
    fn everything_after_rewrite_is_its_path() {
        let call = parse("ANY", "/db/_design/d/_rewrite/a/b%2Fc").unwrap();
        let path = vec!["a".to_owned(), "b/c".to_owned()];
        assert_eq!(call, Call::Rewrite { path });
    }

    #[test]
    fn a_missing_function_is_named() {
        let show = parse("GET", "/db/_design/d/_show/s").unwrap();
        let check = |ddoc: Value| {
            show.check(&DesignDoc {
                id: "_design/d".to_owned(),
                rev: "1-00".to_owned(),
                language: "javascript".to_owned(),
                json: ddoc.to_string().into_bytes().into(),
            })
        };
        assert!(check(json!({"shows": {"s": "function() {}"}})).is_ok());
        assert!(check(json!({"shows": {"s": null}})).is_ok());
        let reason = |ddoc: Value| check(ddoc).unwrap_err().reason.into_owned();
        assert_eq!(reason(json!({"shows": {}})), "missing json key: s");
        assert_eq!(reason(json!({})), "missing json key: shows");
        assert_eq!(reason(json!({"shows": "s"})), "missing json key: s");
    }
}
