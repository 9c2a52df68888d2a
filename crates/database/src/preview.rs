//! Results of unsaved functions: a map and a reduce over some documents, a validation of one write.
//! Nothing is written or built.

use std::sync::Arc;
use std::time::{Duration, Instant};

use document::collation::compare_erlang;
use document::json::members;
use document::{DocId, EditDoc, write_json_string};
use functions::{
    DesignDoc, Doc, Emits, Error as FunctionError, Mapper, Owner, Place, ReduceRow,
    THROWN_BYTES_MAX,
};
use index::reduce::Builtin;
use index::{ReduceSpec, Spec, TrialReduction, ViewSpec};
use storage::RecordHead;

use crate::rules::DatabaseAs;
use crate::select::{IdMerge, Views};
use crate::validate::allowed;
use crate::validators::{QUERY, judge, read_selector};
use crate::{Error, Read, ReadOptions};

/// Documents of one preview.
pub const PREVIEW_DOCS_MAX: usize = 100;
/// Rows of one preview, and bytes of their ids, keys and values.
pub const PREVIEW_ROWS_MAX: usize = 10_000;
/// Bytes of the ids, keys and values of a preview's rows, and of their reductions.
pub const PREVIEW_BYTES_MAX: usize = 4 << 20;
/// Bytes of documents of the database that are read for one preview; one document at least.
pub const PREVIEW_READ_BYTES_MAX: usize = 16 << 20;
/// After 10 s no further document is mapped. Each call also has the functions' own limits.
const TIME_MAX: Duration = Duration::from_secs(10);
/// After 5 s no further document is read.
const READ_TIME_MAX: Duration = Duration::from_secs(5);
/// The design document that they are of, as logs and profiles name it.
const DESIGN: &str = "_design/preview";

/// Functions of a view, as they would stand in a design document.
#[derive(Clone, Debug, Default)]
pub struct PreviewFunctions {
    /// Their language.
    pub language: String,
    /// The source of the map function.
    pub map: String,
    /// The source of the reduce function, or the name of a built-in one.
    pub reduce: Option<String>,
    /// `views.lib` as JSON text.
    pub lib: Option<String>,
    /// Design documents are mapped too.
    pub include_design: bool,
    /// The map function sees `_local_seq` of stored documents.
    pub local_seq: bool,
}

/// Which documents they are run over.
#[derive(Debug)]
pub enum PreviewDocs {
    /// The first documents of the database by id, this number; design documents only if the view
    /// includes them.
    Stored(usize),
    /// The given documents.
    Given(Vec<EditDoc>),
}

/// The results of functions.
#[derive(Debug, Default)]
pub struct Preview {
    /// In the order of the view.
    pub rows: Vec<PreviewRow>,
    /// The reduction of the rows, as JSON text; `None` without rows, or after an error.
    pub reduced: Option<Vec<u8>>,
    /// The reduction of two or more rows in two parts, as for a large view: equal to `reduced` if
    /// the function handles `rereduce` correctly. Only for functions that are not built in.
    pub rereduced: Option<Vec<u8>>,
    /// The errors.
    pub errors: Vec<PreviewError>,
    /// Documents that were mapped.
    pub documents: usize,
    /// A limit was reached: not all documents were mapped.
    pub is_partial: bool,
}

/// A row of a preview.
#[derive(Debug, PartialEq, Eq)]
pub struct PreviewRow {
    /// The document that it is of.
    pub id: String,
    /// JSON text.
    pub key: Vec<u8>,
    /// JSON text.
    pub value: Vec<u8>,
    /// Its sort key, before the id.
    sort: Vec<u8>,
}

/// An error in a preview.
#[derive(Debug)]
pub struct PreviewError {
    /// The document for which the map function failed; `None` of the reduce function.
    pub id: Option<String>,
    /// How.
    pub error: FunctionError,
    /// The line of the function, from 1, where it is known.
    pub line: Option<u32>,
}

/// A write that is tried, all as JSON text.
#[derive(Clone, Debug)]
pub struct TrialWrite {
    /// The source of the `validate_doc_update`.
    pub function: String,
    /// Its language.
    pub language: String,
    /// The design document in which the function's `require` finds modules.
    pub design: Option<Vec<u8>>,
    /// The new document.
    pub new: Vec<u8>,
    /// The present document; `null` if it does not exist.
    pub old: Vec<u8>,
    /// The user of the write; the caller by default.
    pub user: Option<Vec<u8>>,
    /// The security object; the database's when not given.
    pub security: Option<Vec<u8>>,
}

/// A document for a map function.
struct Sample {
    id: String,
    members: Vec<u8>,
    body: Vec<u8>,
}

impl DatabaseAs {
    /// Runs a map function, and a reduce function over its rows: over all of them, and if there is
    /// time over two parts. It always ends, and uses no more than the limits of this module and the
    /// functions' own limits for one document and three reductions. Blocks: functions run.
    ///
    /// # Errors
    /// [`Error::Function`] when the functions cannot be run at all, `invalid_design_doc` for an
    /// unknown built-in reduce function; and errors of reads.
    pub fn preview(
        &self,
        functions: PreviewFunctions,
        docs: PreviewDocs,
    ) -> Result<Preview, Error> {
        self.refuse_limited()?;
        let began = Instant::now();
        let mut preview = Preview::default();
        let spec = Arc::new(spec(functions)?);
        let samples = match docs {
            PreviewDocs::Stored(most) => {
                let (samples, is_cut) =
                    self.samples(&spec, most.min(PREVIEW_DOCS_MAX), began + READ_TIME_MAX)?;
                preview.is_partial = is_cut;
                samples
            }
            PreviewDocs::Given(docs) => {
                let given = docs.into_iter().take(PREVIEW_DOCS_MAX).enumerate();
                given.map(|(n, doc)| Sample::given(n, doc)).collect()
            }
        };
        let owner = Owner {
            database: self.name().clone(),
            design: DESIGN.to_owned(),
            views: vec![],
        };
        let mut group = spec.map_group(owner.clone());
        group.tells = true;
        group.leaves_out = false;
        let mut mapper = self.languages().mapper(&group)?;
        preview.map(mapper.as_mut(), &samples, began + TIME_MAX)?;
        if spec.views.iter().any(|view| !view.reduces.is_empty()) && !preview.rows.is_empty() {
            let limit = self.shared_views().reduce_limit.get();
            let reduced = preview.reduce(|rows| {
                let languages = self.languages().clone();
                index::try_reduce(
                    spec.clone(),
                    languages,
                    limit,
                    &owner,
                    rows,
                    began + TIME_MAX,
                )
            });
            preview.take_reduced(reduced)?;
        }
        Ok(preview)
    }

    /// The first documents that the caller may see, and whether time or memory were too short for
    /// all of the requested ones.
    fn samples(
        &self,
        spec: &Spec,
        most: usize,
        until: Instant,
    ) -> Result<(Vec<Sample>, bool), Error> {
        let options = ReadOptions {
            conflicts: true,
            deleted_conflicts: true,
            local_seq: spec.local_seq,
            ..ReadOptions::default()
        };
        let (views, _) = Views::open(self.all_shards())?;
        let mut merge = IdMerge::new(&views);
        merge.seek(b"");
        let mut samples = vec![];
        let mut bytes = 0;
        let mut is_cut = false;
        while let Some((_, id, value)) = merge.entry() {
            if samples.len() >= most {
                break;
            }
            if bytes >= PREVIEW_READ_BYTES_MAX || Instant::now() >= until {
                is_cut = true;
                break;
            }
            self.live()?;
            let is_mapped = spec.include_design || !id.starts_with(b"_design/");
            let is_mapped = is_mapped && !RecordHead::decode(value)?.deleted;
            let id = str::from_utf8(id).ok().filter(|_| is_mapped);
            if let Some(id) = id.and_then(|id| DocId::new(id).ok())
                && let Read::Found(doc) = self.read(&id, &options)?
            {
                bytes += doc.json.len();
                samples.push(Sample::stored(doc.id.as_str(), &doc.json));
            }
            merge.next();
        }
        merge.status()?;
        Ok((samples, is_cut))
    }

    /// Calls a `validate_doc_update` function for a write that is not executed. Blocks: the
    /// function runs.
    ///
    /// # Errors
    /// [`Error::Function`]: the function's refusal, or the reason why it cannot run.
    pub fn try_write(
        &self,
        place: &Place,
        asker: &crate::Caller,
        tried: TrialWrite,
    ) -> Result<(), Error> {
        let user = tried.user.unwrap_or_else(|| asker.json(self.name()));
        let security = tried
            .security
            .unwrap_or_else(|| self.security().as_bytes().to_vec());
        if tried.language == QUERY {
            let selector =
                read_selector(tried.function.as_bytes()).map_err(FunctionError::Compile)?;
            let pair = [
                b"{\"newDoc\":",
                &tried.new[..],
                b",\"oldDoc\":",
                &tried.old,
                b"}",
            ]
            .concat();
            return Ok(judge(&selector, &pair)?);
        }
        let args = [&tried.new[..], &tried.old, &user, &security].join(&b","[..]);
        let args = [&b"["[..], &args, b"]"].concat();
        let json = validating(tried.design.as_deref(), &tried.language, &tried.function);
        let ddoc = DesignDoc {
            id: DESIGN.to_owned(),
            // A unique one for each: compiled functions are cached by it.
            rev: format!("1-{}", &blake3::hash(&json).to_hex()[..32]),
            language: tried.language,
            json: json.into(),
        };
        let mut designs = self.languages().designs(place, &ddoc.language)?;
        let reply = designs.call(&ddoc, &["validate_doc_update"], &args);
        Ok(allowed(reply)?)
    }
}

/// The view that the functions would be.
fn spec(functions: PreviewFunctions) -> Result<Spec, Error> {
    let reduce = functions.reduce.filter(|source| !source.is_empty());
    let reduces = match reduce
        .as_deref()
        .map(|source| (source, Builtin::parse(source)))
    {
        None => vec![],
        Some((source, None)) => vec![ReduceSpec::Custom(source.to_owned())],
        Some((_, Some(Ok(builtin)))) => vec![ReduceSpec::Builtin(builtin)],
        Some((_, Some(Err(reason)))) => {
            let name = "invalid_design_doc".to_owned();
            return Err(FunctionError::Thrown { name, reason }.into());
        }
    };
    Ok(Spec {
        language: functions.language,
        lib: functions.lib,
        views: vec![ViewSpec {
            map: functions.map,
            raw: false,
            reduces,
        }],
        include_design: functions.include_design,
        local_seq: functions.local_seq,
        partitioned: false,
        dialect: None,
        by_access: false,
    })
}

/// The design document with another validation, as JSON text.
fn validating(design: Option<&[u8]>, language: &str, function: &str) -> Vec<u8> {
    let own = ["_id", "language", "validate_doc_update"];
    let mut out = b"{\"_id\":".to_vec();
    write_json_string(DESIGN, &mut out);
    out.extend_from_slice(b",\"language\":");
    write_json_string(language, &mut out);
    out.extend_from_slice(b",\"validate_doc_update\":");
    write_json_string(function, &mut out);
    for (name, value) in members(design.unwrap_or_default()) {
        if !own.contains(&name.as_str()) {
            push_member(&name, value, &mut out);
        }
    }
    out.push(b'}');
    out
}

fn push_member(name: &str, value: &[u8], out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b',');
    }
    write_json_string(name, out);
    out.push(b':');
    out.extend_from_slice(value);
}

impl Sample {
    /// A sample with the text that a reader gets.
    fn stored(id: &str, json: &[u8]) -> Sample {
        let (mut special, mut others) = (vec![], vec![]);
        for (name, value) in members(json) {
            match name.starts_with('_') {
                true => push_member(&name, value, &mut special),
                false => push_member(&name, value, &mut others),
            }
        }
        Sample {
            id: id.to_owned(),
            members: special,
            body: [b"{", &others[..], b"}"].concat(),
        }
    }

    /// A sample that is not stored: without an id it gets one by its number, and without a revision
    /// a first one.
    fn given(number: usize, doc: EditDoc) -> Sample {
        let id = doc.id.as_ref().map(|id| id.as_str().to_owned());
        let id = id.unwrap_or_else(|| format!("document {}", number + 1));
        let rev = doc.rev_path().and_then(|path| path.newest());
        let rev = rev.map_or_else(|| format!("1-{:032x}", 0), |rev| rev.to_string());
        let mut special = b"\"_id\":".to_vec();
        write_json_string(&id, &mut special);
        special.extend_from_slice(b",\"_rev\":");
        write_json_string(&rev, &mut special);
        if let Some(attachments) = &doc.attachments {
            push_member("_attachments", attachments, &mut special);
        }
        Sample {
            id,
            members: special,
            body: doc.body,
        }
    }
}

impl Preview {
    /// Maps document by document, so that a document that exceeds a limit does not affect the rows
    /// of another.
    fn map(
        &mut self,
        mapper: &mut dyn Mapper,
        samples: &[Sample],
        until: Instant,
    ) -> Result<(), Error> {
        let mut bytes = 0;
        let mut emits = Emits::default();
        for sample in samples {
            if Instant::now() >= until {
                self.is_partial = true;
                break;
            }
            emits.clear();
            let doc = Doc {
                members: &sample.members,
                body: &sample.body,
            };
            match mapper.map(&[doc], &mut emits) {
                Ok(()) => {}
                Err(
                    error @ (FunctionError::Busy { .. }
                    | FunctionError::Late { .. }
                    | FunctionError::UnknownLanguage(_)),
                ) => return Err(error.into()),
                // Others would most likely go as far.
                Err(error) => {
                    self.fail(sample, error, None);
                    break;
                }
            }
            bytes += emits.bytes.len() + emits.rows.len() * sample.id.len();
            if bytes > PREVIEW_BYTES_MAX || self.rows.len() + emits.rows.len() > PREVIEW_ROWS_MAX {
                self.fail(sample, too_much(), None);
                break;
            }
            self.documents += 1;
            for thrown in emits.thrown.drain(..) {
                self.errors.push(PreviewError {
                    id: Some(sample.id.clone()),
                    error: thrown.error,
                    line: thrown.line,
                });
            }
            self.take_rows(sample, &emits)?;
        }
        self.rows.sort_by(|a, b| {
            let places = a.sort.cmp(&b.sort).then_with(|| a.id.cmp(&b.id));
            places.then_with(|| compare_erlang(&a.value, &b.value))
        });
        Ok(())
    }

    fn fail(&mut self, sample: &Sample, error: FunctionError, line: Option<u32>) {
        self.is_partial = true;
        self.errors.push(PreviewError {
            id: Some(sample.id.clone()),
            error: error.cut(THROWN_BYTES_MAX),
            line,
        });
    }

    fn take_rows(&mut self, sample: &Sample, emits: &Emits) -> Result<(), Error> {
        for emit in &emits.rows {
            let mut sort = vec![];
            index::write_key_sort(emits.key(emit), false, &mut sort)?;
            self.rows.push(PreviewRow {
                id: sample.id.clone(),
                key: emits.key(emit).to_vec(),
                value: emits.value(emit).to_vec(),
                sort,
            });
        }
        Ok(())
    }

    fn reduce(
        &self,
        reduce: impl FnOnce(&[ReduceRow<'_>]) -> Result<TrialReduction, index::Error>,
    ) -> Result<TrialReduction, index::Error> {
        let ids: Vec<Vec<u8>> = (self.rows.iter())
            .map(|row| {
                let mut id = vec![];
                write_json_string(&row.id, &mut id);
                id
            })
            .collect();
        let rows: Vec<ReduceRow<'_>> = (self.rows.iter().zip(&ids))
            .map(|(row, id)| ReduceRow {
                key: &row.key,
                id,
                value: &row.value,
            })
            .collect();
        reduce(&rows)
    }

    /// Reports the function's errors next to the rows.
    fn take_reduced(&mut self, reduced: Result<TrialReduction, index::Error>) -> Result<(), Error> {
        let error = match reduced {
            Ok(tried) if tried.at_once.len() <= PREVIEW_BYTES_MAX => {
                self.reduced = Some(tried.at_once);
                match tried.in_parts {
                    None => return Ok(()),
                    Some(Ok(rereduced)) => {
                        self.rereduced = Some(rereduced).filter(|r| r.len() <= PREVIEW_BYTES_MAX);
                        return Ok(());
                    }
                    // There is too little room now, but there was enough for all requested rows.
                    Some(Err(index::Error::Function(
                        FunctionError::Busy { .. } | FunctionError::Late { .. },
                    ))) => return Ok(()),
                    Some(Err(index::Error::Function(error))) => error,
                    Some(Err(error)) => return Err(error.into()),
                }
            }
            Ok(_) => too_much(),
            Err(index::Error::Function(error)) => error,
            Err(error) => return Err(error.into()),
        };
        match error {
            FunctionError::Busy { .. }
            | FunctionError::Late { .. }
            | FunctionError::UnknownLanguage(_) => return Err(error.into()),
            error => self.errors.push(PreviewError {
                id: None,
                error: error.cut(THROWN_BYTES_MAX),
                line: None,
            }),
        }
        Ok(())
    }
}

fn too_much() -> FunctionError {
    FunctionError::Thrown {
        name: "preview_limit_exceeded".to_owned(),
        reason: format!(
            "a preview has at most {PREVIEW_ROWS_MAX} rows and {PREVIEW_BYTES_MAX} bytes"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_document_is_divided_into_what_is_special_and_the_rest() {
        let json = br#"{"_id":"a","x":1.0,"_rev":"1-x","y":{"_z":9223372036854775807},"_conflicts":["1-y"]}"#;
        let sample = Sample::stored("a", json);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        assert_eq!(
            text(&sample.members),
            r#""_id":"a","_rev":"1-x","_conflicts":["1-y"]"#
        );
        assert_eq!(
            text(&sample.body),
            r#"{"x":1.0,"y":{"_z":9223372036854775807}}"#
        );
        assert_eq!(text(&Sample::stored("b", br#"{"_id":"b"}"#).body), "{}");
    }

    #[test]
    fn a_given_document_has_an_id_and_a_revision() {
        let doc = document::parse_document(br#"{"n":1}"#).expect("a document");
        let sample = Sample::given(4, doc);
        assert_eq!(sample.id, "document 5");
        let members = String::from_utf8(sample.members).expect("text");
        assert!(
            members.starts_with(r#""_id":"document 5","_rev":"1-000"#),
            "{members}"
        );
        assert_eq!(sample.body, br#"{"n":1}"#);
    }

    #[test]
    fn a_tried_function_takes_the_place_of_the_design_documents_own() {
        let design = br#"{"_id":"_design/x","language":"erlang","lib":{"a":"1"},"validate_doc_update":"old"}"#;
        assert_eq!(
            validating(Some(design), "javascript", "new"),
            br#"{"_id":"_design/preview","language":"javascript","validate_doc_update":"new","lib":{"a":"1"}}"#
        );
    }

    #[test]
    fn a_built_in_reduce_function_that_there_is_not_is_refused() {
        let functions = |reduce: &str| PreviewFunctions {
            reduce: Some(reduce.to_owned()),
            ..PreviewFunctions::default()
        };
        let refused = spec(functions("_nope"))
            .map(drop)
            .expect_err("there is none");
        assert!(matches!(&refused, Error::Function(e) if e.name() == "invalid_design_doc"));
        assert_eq!(spec(functions("")).expect("a view").views[0].reduces, []);
        let custom = ReduceSpec::Custom("function () {}".to_owned());
        assert_eq!(
            spec(functions("function () {}")).expect("a view").views[0].reduces,
            [custom]
        );
    }
}
