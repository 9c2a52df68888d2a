//! `_revs_diff` and `_missing_revs`: which revisions a database lacks.
//!
//! The response is made document by document: a document with thousands of leaves has as many
//! possible ancestors, whichever revision of it is missing.

use database::{DatabaseAs, RevsDiff, Turn};
use document::{Rev, RevHash};
use serde_json::{Map, Value};

use crate::errors::ApiError;
use crate::load::SHORT_BODY_BYTES_MAX;
use crate::reply::Reply;
use crate::reply::stream::{CHUNK_BYTES, PieceMaker, pull, pull_apart};
use crate::request::Request;
use crate::request::revisions::parse_revs_or;
use node::Access;

type Answer = Result<Reply, ApiError>;

/// More documents and revisions are not looked up on the thread that serves requests.
const LOOKED_UP_HERE_MAX: usize = 500;

/// The ids of documents, with revisions of each.
type RevsById = Vec<(String, Vec<Rev>)>;

/// `_revs_diff`
pub async fn revs_diff(req: &mut Request, access: &Access) -> Answer {
    answer(req, access, Form::Diff).await
}

/// `_missing_revs`
pub async fn missing_revs(req: &mut Request, access: &Access) -> Answer {
    answer(req, access, Form::Missing).await
}

async fn answer(req: &mut Request, access: &Access, form: Form) -> Answer {
    let ids = revs_body(req).await?;
    // Before anything is sent.
    for (id, _) in &ids {
        access.db.check_partitioned(id)?;
    }
    req.keep(memory_bytes(&ids)).await?;
    let lookups = ids.len() + ids.iter().map(|(_, revs)| revs.len()).sum::<usize>();
    let maker = Maker {
        db: access.db.clone(),
        ids: ids.into_iter(),
        form,
        state: State::Head,
        is_long: lookups >= LOOKED_UP_HERE_MAX,
    };
    match maker.is_long {
        true => pull_apart(&req.answers, "application/json", maker).await,
        false => pull(&req.answers, "application/json", maker).await,
    }
}

async fn revs_body(req: &mut Request) -> Result<RevsById, ApiError> {
    req.require_json()?;
    let body = req.json_object().await?;
    match req.body_bytes > SHORT_BODY_BYTES_MAX as u64 {
        true => req.answers.apart(move || parse(body)).await?,
        false => parse(body),
    }
}

fn parse(body: Map<String, Value>) -> Result<RevsById, ApiError> {
    let with_revs = |(id, revs): (String, Value)| {
        let revs = parse_revs_or(&revs, "Invalid revisions, must be a list")?;
        Ok((id, revs))
    };
    body.into_iter().map(with_revs).collect()
}

/// Memory that ids and revisions take, about, in bytes.
fn memory_bytes(ids: &RevsById) -> usize {
    let of_hash = |rev: &Rev| match &rev.hash {
        RevHash::Md5(_) => 0,
        RevHash::Text(text) => text.len(),
    };
    let of_document = |(id, revs): &(String, Vec<Rev>)| {
        let hashes = revs.iter().map(of_hash).sum::<usize>();
        id.capacity() + revs.capacity() * size_of::<Rev>() + hashes
    };
    ids.capacity() * size_of::<(String, Vec<Rev>)>() + ids.iter().map(of_document).sum::<usize>()
}

#[derive(Clone, Copy)]
enum Form {
    Diff,
    Missing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    First,
    More,
    Done,
}

/// Makes the response.
struct Maker {
    db: DatabaseAs,
    /// Those that are left.
    ids: std::vec::IntoIter<(String, Vec<Rev>)>,
    form: Form,
    state: State,
    /// Whether threads that give way do the rest.
    is_long: bool,
}

impl PieceMaker for Maker {
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        match self.state {
            State::Done => return Ok(false),
            State::Head => {
                self.state = State::First;
                out.extend_from_slice(match self.form {
                    Form::Diff => b"{",
                    Form::Missing => b"{\"missing_revs\":{",
                });
            }
            State::First | State::More => {}
        }
        let mut turn = Turn::begin();
        for (id, revs) in self.ids.by_ref() {
            if let Some(diff) = self.db.revs_diff(&id, &revs)? {
                if std::mem::replace(&mut self.state, State::More) == State::More {
                    out.push(b',');
                }
                write(self.form, &id, &diff, out);
            }
            if turn.is_over(true) {
                self.is_long = true;
                return Ok(true);
            }
            if out.len() >= CHUNK_BYTES {
                return Ok(true);
            }
        }
        self.state = State::Done;
        out.extend_from_slice(match self.form {
            Form::Diff => b"}\n",
            Form::Missing => b"}}\n",
        });
        Ok(false)
    }

    fn is_long(&self) -> bool {
        self.is_long
    }
}

/// Appends what a document lacks.
fn write(form: Form, id: &str, diff: &RevsDiff, out: &mut Vec<u8>) {
    write_text(id, out);
    match form {
        Form::Missing => {
            out.push(b':');
            write_revs(&diff.missing, out);
        }
        Form::Diff => {
            out.extend_from_slice(b":{\"missing\":");
            write_revs(&diff.missing, out);
            if !diff.possible_ancestors.is_empty() {
                out.extend_from_slice(b",\"possible_ancestors\":");
                write_revs(&diff.possible_ancestors, out);
            }
            out.push(b'}');
        }
    }
}

/// Appends a list of revisions.
pub fn write_revs(revs: &[Rev], out: &mut Vec<u8>) {
    out.push(b'[');
    for (i, rev) in revs.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_text(&rev.to_string(), out);
    }
    out.push(b']');
}

/// Appends a text as `serde_json` writes it.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(&mut *out, text).expect("a text is written to memory");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rev(text: &str) -> Rev {
        Rev::parse(text).expect("a revision")
    }

    #[test]
    fn both_forms_are_the_json_of_their_values() {
        let diff = RevsDiff {
            missing: vec![rev("2-b"), rev("3-\"\u{1f}ä")],
            possible_ancestors: vec![rev("1-967a00dff5e02add41819138abb3284d")],
        };
        let of = |form, diff: &RevsDiff| {
            let mut out = vec![b'{'];
            write(form, "a\"\n", diff, &mut out);
            out.push(b'}');
            String::from_utf8(out).expect("UTF-8")
        };
        let missing = json!(["2-b", "3-\"\u{1f}ä"]);
        let ancestors = json!(["1-967a00dff5e02add41819138abb3284d"]);
        let whole = json!({"a\"\n": {"missing": missing, "possible_ancestors": ancestors}});
        assert_eq!(of(Form::Diff, &diff), whole.to_string());
        assert_eq!(
            of(Form::Missing, &diff),
            json!({"a\"\n": missing}).to_string()
        );
        let alone = RevsDiff {
            possible_ancestors: vec![],
            ..diff
        };
        assert_eq!(
            of(Form::Diff, &alone),
            json!({"a\"\n": {"missing": missing}}).to_string()
        );
    }
}
