//! `/{db}/_settee/preview`: results of unsaved functions.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use database::{
    Error, PREVIEW_DOCS_MAX, Preview, PreviewDocs, PreviewError, PreviewFunctions, TrialWrite,
};
use document::json::{Elements, member, string_text};
use document::{normalise, parse_document, write_json_string};
use fair_queue::{Limits, Queue};
use functions::{Error as FunctionError, JAVASCRIPT, Lane, THROWN_BYTES_MAX, language_name};

use crate::app::App;
use crate::design_routes::function_call::{in_time, place};
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use node::Access;

type Answer = Result<Reply, ApiError>;

/// Previews at a time, those of one database, and those of one user: each has a thread, which waits
/// for places of the functions call by call.
const PREVIEWS_MAX: usize = 4;
const PREVIEWS_OF_DATABASE_MAX: usize = 3;
const PREVIEWS_OF_USER_MAX: usize = 2;

static TURNS: LazyLock<Arc<Queue>> = LazyLock::new(|| {
    Queue::new(Limits {
        of_user: PREVIEWS_OF_USER_MAX,
        of_database: PREVIEWS_OF_DATABASE_MAX,
        ..Limits::new(PREVIEWS_MAX)
    })
});

/// The functions to try.
enum Wanted {
    View(PreviewFunctions, PreviewDocs),
    Write(TrialWrite),
}

/// For users who may write design documents: they could also save the functions and run them.
pub async fn route(app: &App, req: &mut Request, access: &Access) -> Answer {
    req.require_json()?;
    let body = req.required_bytes().await?;
    // It may be long.
    match req.answers.apart(move || parse(&body)).await?? {
        Wanted::View(functions, docs) => view(app, access, functions, docs).await,
        Wanted::Write(tried) => write(app, req, access, tried).await,
    }
}

async fn view(
    app: &App,
    access: &Access,
    functions: PreviewFunctions,
    docs: PreviewDocs,
) -> Answer {
    let turn = in_time(app, TURNS.admission(&access.db.share())).await?;
    let db = access.db.clone();
    let work = move || {
        let _turn = turn;
        let _cause = db.requester().enter();
        db.preview(functions, docs).map(|preview| answer(&preview))
    };
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(ApiError::worker_failed)?;
    Ok(Reply::json_bytes(200, done.map_err(refused)?))
}

async fn write(app: &App, req: &Request, access: &Access, tried: TrialWrite) -> Answer {
    let place = place(app, access, Lane::Calls).await?;
    let (db, asker) = (access.db.clone(), req.caller());
    let work = move || db.try_write(&place, &asker, tried);
    let done = tokio::task::spawn_blocking(work).await;
    let verdict = match done.map_err(ApiError::worker_failed)? {
        Ok(()) => b"{\"ok\":true}".to_vec(),
        Err(Error::Function(
            error @ (FunctionError::Thrown { .. }
            | FunctionError::BadArgument(_)
            | FunctionError::Forbidden(_)
            | FunctionError::Unauthorized(_)),
        )) => failure(None, &error.cut(THROWN_BYTES_MAX), None),
        Err(error) => return Err(refused(error)),
    };
    let body = [&b"{\"validate\":"[..], &verdict, b"}\n"].concat();
    Ok(Reply::json_bytes(200, body))
}

/// A function that cannot be run at all is a bad request here, where it comes with the request.
fn refused(error: Error) -> ApiError {
    use FunctionError::{BadArgument, Compile, Thrown, UnknownLanguage};
    match error {
        Error::Function(e @ (BadArgument(_) | Compile(_) | Thrown { .. } | UnknownLanguage(_))) => {
            ApiError::new(400, e.name().to_owned(), e.reason())
        }
        error => error.into(),
    }
}

fn answer(preview: &Preview) -> Bytes {
    let mut out = b"{\"rows\":".to_vec();
    list(&preview.rows, &mut out, |row, out| {
        out.extend_from_slice(b"{\"id\":");
        write_json_string(&row.id, out);
        for (name, value) in [(",\"key\":", &row.key), (",\"value\":", &row.value)] {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(value);
        }
        out.push(b'}');
    });
    let reduced = [
        ("reduced", &preview.reduced),
        ("rereduced", &preview.rereduced),
    ];
    for (name, value) in reduced {
        let Some(value) = value else { continue };
        out.extend_from_slice(format!(",\"{name}\":").as_bytes());
        out.extend_from_slice(value);
    }
    out.extend_from_slice(b",\"errors\":");
    list(&preview.errors, &mut out, |e, out| {
        let PreviewError { id, error, line } = e;
        out.extend_from_slice(&failure(id.as_deref(), error, *line));
    });
    let (documents, is_partial) = (preview.documents, preview.is_partial);
    out.extend_from_slice(
        format!(",\"documents\":{documents},\"partial\":{is_partial}}}\n").as_bytes(),
    );
    out.into()
}

/// An array of `all`, of which each writes its own.
fn list<T>(all: &[T], out: &mut Vec<u8>, write: impl Fn(&T, &mut Vec<u8>)) {
    out.push(b'[');
    for (i, each) in all.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(each, out);
    }
    out.push(b']');
}

fn failure(id: Option<&str>, error: &FunctionError, line: Option<u32>) -> Vec<u8> {
    let mut out = b"{".to_vec();
    let reason = error.reason();
    let members = [
        ("id", id),
        ("error", Some(error.name())),
        ("reason", Some(&reason)),
    ];
    for (name, text) in members {
        let Some(text) = text else { continue };
        if out.len() > 1 {
            out.push(b',');
        }
        write_json_string(name, &mut out);
        out.push(b':');
        write_json_string(text, &mut out);
    }
    if let Some(line) = line {
        out.extend_from_slice(format!(",\"line\":{line}").as_bytes());
    }
    out.push(b'}');
    out
}

fn parse(body: &[u8]) -> Result<Wanted, ApiError> {
    let body = normalise(body)?;
    if body.first() != Some(&b'{') {
        return Err(ApiError::bad_request("Request body must be a JSON object"));
    }
    let design = object(&body, "design")?;
    let language = match (text(&body, "language")?, design) {
        (Some(language), _) => Some(language),
        (None, Some(design)) => text(design, "language")?,
        (None, None) => None,
    };
    let language = language.map_or_else(|| JAVASCRIPT.to_owned(), |name| language_name(&name));
    if let Some(tried) = object(&body, "validate")? {
        return Ok(Wanted::Write(TrialWrite {
            function: required(text(tried, "function")?, "validate.function")?,
            language,
            design: design.map(<[u8]>::to_vec),
            new: required(object(tried, "newDoc")?, "validate.newDoc")?.to_vec(),
            old: object(tried, "oldDoc")?.unwrap_or(b"null").to_vec(),
            user: object(tried, "userCtx")?.map(<[u8]>::to_vec),
            security: object(tried, "secObj")?.map(<[u8]>::to_vec),
        }));
    }
    let views = design.and_then(|design| member(design, "views"));
    let options = design.and_then(|design| member(design, "options"));
    let is_set = |name| options.and_then(|options| member(options, name)) == Some(&b"true"[..]);
    let lib = views.and_then(|views| member(views, "lib"));
    let functions = PreviewFunctions {
        language,
        map: required(text(&body, "map")?, "map")?,
        reduce: text(&body, "reduce")?,
        lib: lib.map(|lib| String::from_utf8_lossy(lib).into_owned()),
        include_design: is_set("include_design"),
        local_seq: is_set("local_seq"),
    };
    Ok(Wanted::View(functions, docs(&body)?))
}

/// How many of the database, or documents.
fn docs(body: &[u8]) -> Result<PreviewDocs, ApiError> {
    let too_many = || ApiError::bad_request(format!("`docs` are at most {PREVIEW_DOCS_MAX}"));
    match present(body, "docs") {
        None => Ok(PreviewDocs::Stored(PREVIEW_DOCS_MAX)),
        Some(given @ [b'[', ..]) => {
            if Elements::of(given).nth(PREVIEW_DOCS_MAX).is_some() {
                return Err(too_many());
            }
            let docs = Elements::of(given).map(parse_document);
            Ok(PreviewDocs::Given(docs.collect::<Result<_, _>>()?))
        }
        Some(number) => {
            let number = str::from_utf8(number).ok();
            let number = number.and_then(|number| number.parse::<usize>().ok());
            let number = number.ok_or_else(|| {
                ApiError::bad_request("`docs` must be a number or an array of documents")
            })?;
            match number <= PREVIEW_DOCS_MAX {
                true => Ok(PreviewDocs::Stored(number)),
                false => Err(too_many()),
            }
        }
    }
}

/// A member that exists, and is not null.
fn present<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    member(object, name).filter(|value| *value != b"null")
}

fn text(object: &[u8], name: &str) -> Result<Option<String>, ApiError> {
    let Some(value) = present(object, name) else {
        return Ok(None);
    };
    match string_text(value) {
        Some(text) => Ok(Some(text.into_owned())),
        None => Err(ApiError::bad_request(format!("`{name}` must be a string"))),
    }
}

fn object<'a>(of: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, ApiError> {
    match present(of, name) {
        Some(value) if value.first() != Some(&b'{') => {
            Err(ApiError::bad_request(format!("`{name}` must be an object")))
        }
        value => Ok(value),
    }
}

fn required<T>(value: Option<T>, name: &str) -> Result<T, ApiError> {
    value.ok_or_else(|| ApiError::bad_request(format!("`{name}` is missing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(body: &str) -> String {
        match parse(body.as_bytes()) {
            Ok(_) => String::new(),
            Err(e) => e.reason.into_owned(),
        }
    }

    #[test]
    fn what_is_wrong_with_a_request_is_named() {
        for (body, expected) in [
            ("[]", "Request body must be a JSON object"),
            ("{}", "`map` is missing"),
            (r#"{"map":1}"#, "`map` must be a string"),
            (r#"{"map":"m","design":[]}"#, "`design` must be an object"),
            (r#"{"map":"m","docs":101}"#, "`docs` are at most 100"),
            (
                r#"{"map":"m","docs":"x"}"#,
                "`docs` must be a number or an array of documents",
            ),
            (r#"{"validate":{}}"#, "`validate.function` is missing"),
            (
                r#"{"validate":{"function":"f","newDoc":1}}"#,
                "`newDoc` must be an object",
            ),
        ] {
            assert_eq!(reason(body), expected, "{body}");
        }
        let many = format!(r#"{{"map":"m","docs":[{}]}}"#, vec!["{}"; 101].join(","));
        assert_eq!(reason(&many), "`docs` are at most 100");
    }

    #[test]
    fn the_language_and_the_library_are_those_of_the_design_document() {
        let body = r#"{"map":"m","design":{"language":"erlang","views":{"lib":{"a":1.0}}}}"#;
        let Ok(Wanted::View(functions, PreviewDocs::Stored(100))) = parse(body.as_bytes()) else {
            panic!("it is a view over stored documents");
        };
        assert_eq!(functions.language, "erlang");
        assert_eq!(functions.lib.as_deref(), Some(r#"{"a":1.0}"#));
    }

    #[test]
    fn numbers_of_documents_stay_as_they_are() {
        let body =
            r#"{"validate":{"function":"f","newDoc":{"n":9223372036854775807},"oldDoc":null}}"#;
        let Ok(Wanted::Write(tried)) = parse(body.as_bytes()) else {
            panic!("it is a write");
        };
        assert_eq!(tried.new, br#"{"n":9223372036854775807}"#);
        assert_eq!(tried.old, b"null");
    }
}
