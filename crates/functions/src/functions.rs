//! Chooses the server for the functions of a language.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use profiler::Label;
use projection::Projection;
use query_server::{Pools, Settings};

use query_server::language::{ANSWER_TIME_LIMIT, EMITS_BYTES_MAX, Owner};

use crate::js::{Engine, Options};
use crate::places::{Admission, Cause, Lane, Place, Places, Share};
use crate::times;
use crate::{
    DesignDoc, Designs, Doc, Emits, Error, Indexes, Languages, ListIo, MapGroup, Mapper, ReduceRow,
    Reducer,
};

// `projection` writes the mark that `quickjs` reads; neither depends on the other.
const _: () = assert!(projection::WHOLE == quickjs::WHOLE);

/// The built-in language, which is the default of design documents.
pub const JAVASCRIPT: &str = "javascript";

/// Returns the name under which a design document's `language` is looked up: in lower case, and `javascript` for
/// CouchDB's names of its two JavaScript engines, `javascript_quickjs` and `javascript_spidermonkey`.
///
/// CouchDB compares the names of languages in upper case.
pub fn language_name(written: &str) -> String {
    let name = written.to_ascii_lowercase();
    match name.as_str() {
        "javascript_quickjs" | "javascript_spidermonkey" => JAVASCRIPT.to_owned(),
        _ => name,
    }
}

/// Groups of map functions whose projections are kept.
const PROJECTIONS_KEPT: NonZeroUsize = NonZeroUsize::new(256).unwrap();
/// Projections of longer sources are computed each time, in bytes.
const SOURCES_BYTES_MAX: usize = 64 << 10;

/// Sources of map functions, and their `views.lib`.
type Sources = (Vec<String>, Option<String>);

/// All languages: JavaScript by the built-in engine, others by query servers.
pub struct Functions {
    engine: Engine,
    time_zone: String,
    pools: Pools,
    places: Arc<Places>,
    /// The members that groups can access; `None` for those that get whole documents.
    projections: Mutex<LruCache<Sources, Option<Arc<Projection>>>>,
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Functions").finish_non_exhaustive()
    }
}

impl Functions {
    /// A JavaScript command in `query_servers` replaces the engine.
    ///
    /// # Errors
    /// [`Error::Process`] when a thread cannot be started.
    pub fn new(javascript: Options, query_servers: Settings) -> Result<Arc<Functions>, Error> {
        times::begin();
        Ok(Arc::new(Functions {
            places: Places::new(javascript.workers_max, javascript.queue_max),
            time_zone: javascript.time_zone.clone(),
            engine: Engine::new(javascript),
            pools: Pools::new(query_servers)?,
            projections: Mutex::new(LruCache::new(PROJECTIONS_KEPT)),
        }))
    }

    /// Replaces the settings of query servers.
    pub fn configure(&self, query_servers: Settings) {
        self.pools.configure(query_servers);
    }

    fn turns(&self, database: &Arc<str>) -> Turns {
        Turns {
            places: self.places.clone(),
            cause: Cause::current(),
            database: database.clone(),
        }
    }

    fn is_built_in(&self, language: &str) -> bool {
        language == JAVASCRIPT && !self.pools.has(language)
    }

    fn new_mapper(&self, group: &MapGroup) -> Result<Box<dyn Mapper>, Error> {
        let turns = self.turns(&group.owner.database);
        let placed = |turns, inner| PlacedMapper {
            turns,
            owner: group.owner.clone(),
            inner,
        };
        let is_built_in = match group.indexes != Indexes::No {
            // Query servers do not support `index`.
            true if group.language != JAVASCRIPT => {
                return Err(Error::UnknownLanguage(group.language.clone()));
            }
            true => true,
            false => self.is_built_in(&group.language),
        };
        if !is_built_in {
            let inner = self.pools.mapper(group)?;
            return Ok(Box::new(placed(turns, inner)));
        }
        let _place = turns.next()?;
        let Some(projection) = self.projection(group) else {
            let inner = self.engine.mapper(group)?;
            return Ok(Box::new(placed(turns, inner)));
        };
        let records = MapGroup {
            records: true,
            ..group.clone()
        };
        let inner = self.engine.mapper(&records)?;
        Ok(Box::new(ProjectingMapper {
            inner: placed(turns, inner),
            projection,
            bodies: vec![],
        }))
    }

    fn new_designs(&self, database: &Arc<str>, language: &str) -> Result<Box<dyn Designs>, Error> {
        match self.is_built_in(language) {
            true => Ok(self.engine.designs(database)),
            false => self.pools.designs(database, language),
        }
    }

    fn new_reducer(
        &self,
        database: &Arc<str>,
        language: &str,
        source: &str,
        lib: Option<&str>,
    ) -> Result<Box<dyn Reducer>, Error> {
        match self.is_built_in(language) {
            true => Ok(self.engine.reducer(database, source, lib)),
            false => self.pools.reducer(database, language, source, lib),
        }
    }

    /// Returns the members that a group's functions can access, unless they get whole documents.
    fn projection(&self, group: &MapGroup) -> Option<Arc<Projection>> {
        let sources = (group.maps.clone(), group.lib.clone());
        if let Some(known) = self.projections.lock().get(&sources) {
            return known.clone();
        }
        let projection = Projection::of_group(&group.maps, group.lib.as_deref());
        let projection = projection.ok().map(Arc::new);
        let lengths = sources.0.iter().chain(&sources.1).map(String::len);
        if lengths.sum::<usize>() <= SOURCES_BYTES_MAX {
            self.projections.lock().put(sources, projection.clone());
        }
        projection
    }
}

// Texts of all errors are bounded here: callers keep them for each document of a request, for each
// waiting request and for each index.
impl Languages for Functions {
    fn admission(&self, lane: Lane, share: &Share) -> Admission {
        self.places.admission(lane, share)
    }

    fn mapper(&self, group: &MapGroup) -> Result<Box<dyn Mapper>, Error> {
        self.new_mapper(group).map_err(Error::bounded)
    }

    fn reducer(
        &self,
        database: &Arc<str>,
        language: &str,
        source: &str,
        lib: Option<&str>,
    ) -> Result<Box<dyn Reducer>, Error> {
        let inner = self.new_reducer(database, language, source, lib);
        let inner = inner.map_err(Error::bounded)?;
        let turns = self.turns(database);
        Ok(Box::new(PlacedReducer { turns, inner }))
    }

    fn designs(&self, place: &Place, language: &str) -> Result<Box<dyn Designs>, Error> {
        let database = place.database().cloned().unwrap_or_default();
        let inner = self.new_designs(&database, language);
        let inner = inner.map_err(Error::bounded)?;
        Ok(Box::new(LabelledDesigns { database, inner }))
    }

    fn check(
        &self,
        _: &Place,
        language: &str,
        source: &str,
        lib: Option<&str>,
    ) -> Result<(), Error> {
        let checked = match self.is_built_in(language) {
            true => self.engine.check(source, lib),
            false => self.pools.check(language, source),
        };
        checked.map_err(Error::bounded)
    }

    fn projections(&self, group: &MapGroup) -> Vec<Result<String, String>> {
        if !self.is_built_in(&group.language) {
            return vec![];
        }
        let spoiled = Projection::of_group(&group.maps, group.lib.as_deref()).err();
        let each = |(i, map): (usize, &String)| match (&spoiled, Projection::analyse(map)) {
            (_, Err(refusal)) => Err(refusal.to_string()),
            (Some((at, refusal)), _) if *at == i => Err(refusal.to_string()),
            (Some((_, refusal)), _) => Err(format!(
                "another map function of the design document needs whole documents: {refusal}"
            )),
            (None, Ok(projection)) => Ok(projection.describe()),
        };
        group.maps.iter().enumerate().map(each).collect()
    }

    fn limit(&self, language: &str, name: &str) -> Option<u64> {
        match self.is_built_in(language) {
            true => self.engine.limit(name),
            false => (name == ANSWER_TIME_LIMIT).then(|| self.pools.answer_time_ms()),
        }
    }

    fn time_zone(&self) -> &str {
        &self.time_zone
    }

    fn rest(&self) {
        self.engine.rest();
    }

    fn worker_memory(&self) -> (u64, u64) {
        self.engine.worker_memory()
    }
}

/// The source of places for functions of a database whose results are stored.
struct Turns {
    places: Arc<Places>,
    cause: Arc<Cause>,
    database: Arc<str>,
}

impl Turns {
    /// Waits on this thread: builds and pieces of answers are limited.
    fn next(&self) -> Result<Place, Error> {
        let share = self.cause.requester().share(&self.database);
        Ok(self.places.admission(Lane::Work, &share).wait()?)
    }
}

/// A mapper that has a place while it works, and gets a new one when others wait.
struct PlacedMapper {
    turns: Turns,
    owner: Owner,
    inner: Box<dyn Mapper>,
}

impl Mapper for PlacedMapper {
    fn map(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<(), Error> {
        let mut done = 0;
        while done < docs.len() {
            let mark = out.mark();
            let some = self.map_some(&docs[done..], out)?;
            out.renumber(mark, done);
            done += some;
        }
        Ok(())
    }

    /// Takes as many turns as it needs: it stops only after many rows.
    fn map_some(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<usize, Error> {
        let mut place = self.turns.next()?;
        let start = out.size();
        let mut done = 0;
        while done < docs.len() && out.size() - start < EMITS_BYTES_MAX {
            if place.is_wanted() {
                drop(place);
                place = self.turns.next()?;
            }
            let mark = out.mark();
            let some = self.inner.map_some(&docs[done..], out);
            let some = some.map_err(Error::bounded)?;
            out.renumber(mark, done);
            done += some;
        }
        times::note(&self.owner, &out.spent);
        out.spent.clear();
        Ok(done)
    }
}

/// A custom reduce function that has a place while it is called.
struct PlacedReducer {
    turns: Turns,
    inner: Box<dyn Reducer>,
}

impl Reducer for PlacedReducer {
    fn reduce(&mut self, rows: &[ReduceRow<'_>]) -> Result<Vec<u8>, Error> {
        let _place = self.turns.next()?;
        self.inner.reduce(rows).map_err(Error::bounded)
    }

    fn rereduce(&mut self, values: &[&[u8]]) -> Result<Vec<u8>, Error> {
        let _place = self.turns.next()?;
        self.inner.rereduce(values).map_err(Error::bounded)
    }
}

/// Labels calls of functions with their names, for profiles, and bounds the texts of their errors.
struct LabelledDesigns {
    database: Arc<str>,
    inner: Box<dyn Designs>,
}

impl LabelledDesigns {
    fn label(&self, ddoc: &DesignDoc, path: &[&str]) -> Label {
        Label::new(&format!("{}/{}/{}", self.database, ddoc.id, path.join("/")))
    }
}

impl Designs for LabelledDesigns {
    fn call(&mut self, ddoc: &DesignDoc, path: &[&str], args: &[u8]) -> Result<Vec<u8>, Error> {
        let label = self.label(ddoc, path);
        let reply = profiler::labelled(&label, || self.inner.call(ddoc, path, args));
        reply.map_err(Error::bounded)
    }

    fn call_some(
        &mut self,
        ddoc: &DesignDoc,
        path: &[&str],
        args: &[&[u8]],
    ) -> Vec<Result<Vec<u8>, Error>> {
        let label = self.label(ddoc, path);
        let replies = profiler::labelled(&label, || self.inner.call_some(ddoc, path, args));
        let bounded = |reply: Result<_, Error>| reply.map_err(Error::bounded);
        replies.into_iter().map(bounded).collect()
    }

    fn list(
        &mut self,
        ddoc: &DesignDoc,
        path: &[&str],
        args: &[u8],
        io: &mut dyn ListIo,
    ) -> Result<(), Error> {
        let label = self.label(ddoc, path);
        let ended = profiler::labelled(&label, || self.inner.list(ddoc, path, args, io));
        ended.map_err(Error::bounded)
    }
}

/// Passes functions only those members of a document's body that they can access.
struct ProjectingMapper {
    inner: PlacedMapper,
    projection: Arc<Projection>,
    /// The concatenated bodies of one call.
    bodies: Vec<u8>,
}

impl ProjectingMapper {
    /// Calls `map` with the projected documents.
    fn projected<T>(
        &mut self,
        docs: &[Doc<'_>],
        map: impl FnOnce(&mut PlacedMapper, &[Doc<'_>]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.bodies.clear();
        let mut ends = Vec::with_capacity(docs.len());
        for doc in docs {
            self.projection.project_records(doc.body, &mut self.bodies);
            ends.push(self.bodies.len());
        }
        let mut start = 0;
        let mut projected = Vec::with_capacity(docs.len());
        for (doc, end) in docs.iter().zip(ends) {
            projected.push(Doc {
                members: doc.members,
                body: &self.bodies[start..end],
            });
            start = end;
        }
        map(&mut self.inner, &projected)
    }
}

impl Mapper for ProjectingMapper {
    fn map(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<(), Error> {
        self.projected(docs, |inner, docs| inner.map(docs, out))
    }

    fn map_some(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<usize, Error> {
        self.projected(docs, |inner, docs| inner.map_some(docs, out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions() -> Arc<Functions> {
        Functions::new(Options::default(), Settings::default()).expect("a thread")
    }

    fn place() -> Place {
        Place::uncounted()
    }

    #[test]
    fn javascript_is_built_in_and_nothing_else() {
        let functions = functions();
        let place = place();
        assert_eq!(
            functions.check(&place, JAVASCRIPT, "function(doc) {}", None),
            Ok(())
        );
        assert!(matches!(
            functions.check(&place, JAVASCRIPT, "function(doc) {", None),
            Err(Error::Compile(_))
        ));
        for language in ["cobol", "erlang", "JavaScript", ""] {
            assert_eq!(
                functions.check(&place, language, "x", None),
                Err(Error::UnknownLanguage(language.to_owned()))
            );
            assert!(functions.designs(&place, language).is_err());
            assert!(
                functions
                    .reducer(&"db".into(), language, "x", None)
                    .is_err()
            );
        }
    }

    fn reason_of<T: std::fmt::Debug>(failed: Result<T, Error>) -> String {
        failed.expect_err("the function throws").reason()
    }

    #[test]
    fn what_functions_throw_is_cut() {
        let functions = functions();
        let thrown = [
            "{forbidden: LONG}",
            "{unauthorized: LONG}",
            "{forbidden: {a: LONG}}",
            "new Error(LONG)",
            "['error', 'n', LONG]",
            "['fatal', 'n', LONG]",
            "LONG",
            "[LONG]",
        ];
        for thrown in thrown.map(|thrown| thrown.replace("LONG", "'é'.repeat(1e6)")) {
            let ddoc = DesignDoc {
                id: "_design/d".into(),
                rev: "1-a".into(),
                language: JAVASCRIPT.into(),
                json: format!(
                    r#"{{"_id":"_design/d","validate_doc_update":"function () {{ throw {thrown}; }}"}}"#
                )
                .into_bytes()
                .into(),
            };
            let mut designs = functions.designs(&place(), JAVASCRIPT).expect("designs");
            let args: [&[u8]; 2] = [b"[{},null,{},{}]"; 2];
            for reply in designs.call_some(&ddoc, &["validate_doc_update"], &args) {
                let length = reason_of(reply).len();
                let expected = query_server::language::ERROR_BYTES_MAX;
                assert!(
                    (expected - 1..=expected).contains(&length),
                    "{thrown}: {length}"
                );
            }
        }
    }

    #[test]
    fn fatal_errors_of_maps_are_cut() {
        let functions = functions();
        let group = MapGroup {
            language: JAVASCRIPT.to_owned(),
            maps: vec!["function (doc) { throw ['fatal', 'n', 'x'.repeat(1e6)]; }".to_owned()],
            ..MapGroup::default()
        };
        let mut mapper = functions.mapper(&group).expect("a mapper");
        let doc = Doc {
            members: br#""_id":"a","_rev":"1-a""#,
            body: b"{}",
        };
        let failed = mapper.map(&[doc], &mut Emits::default());
        assert_eq!(
            reason_of(failed).len(),
            query_server::language::ERROR_BYTES_MAX
        );
        let long = "c".repeat(1 << 20);
        let unknown = MapGroup {
            language: long.clone(),
            ..group
        };
        let failed = functions.mapper(&unknown).map(drop);
        assert!(reason_of(failed).len() <= query_server::language::ERROR_BYTES_MAX);
        let failed = functions.designs(&place(), &long).map(drop);
        assert!(reason_of(failed).len() <= query_server::language::ERROR_BYTES_MAX);
    }

    #[test]
    fn documents_with_long_rows_are_mapped_in_several_calls() {
        let functions = functions();
        // They get projected documents, and whole ones.
        for value in ["doc.a", "doc"] {
            let group = MapGroup {
                language: JAVASCRIPT.to_owned(),
                maps: vec![format!(
                    "function (doc) {{ emit({value}, 'x'.repeat(1 << 20)); }}"
                )],
                ..MapGroup::default()
            };
            let mut mapper = functions.mapper(&group).expect("a mapper");
            let doc = Doc {
                members: br#""_id":"x","_rev":"1-a""#,
                body: br#"{"a":1}"#,
            };
            let docs = [doc; 30];
            let (mut done, mut calls) = (0, 0);
            while done < docs.len() {
                let mut out = Emits::default();
                let some = mapper.map_some(&docs[done..], &mut out).expect("rows");
                assert!(
                    some > 0 && out.size() < 2 * EMITS_BYTES_MAX + (2 << 20),
                    "{some} documents"
                );
                assert!(out.rows.iter().map(|row| row.doc as usize).eq(0..some));
                done += some;
                calls += 1;
            }
            assert!(calls > 1, "{value}: {calls} calls");
            let mut all = Emits::default();
            mapper.map(&docs, &mut all).expect("rows");
            let numbers = all.rows.iter().map(|row| row.doc as usize);
            assert!(numbers.eq(0..docs.len()), "{value}");
        }
    }

    #[test]
    fn functions_get_the_members_that_they_touch() {
        let functions = functions();
        let group = |maps: &[&str]| MapGroup {
            language: JAVASCRIPT.to_owned(),
            maps: maps.iter().map(|m| (*m).to_owned()).collect(),
            ..MapGroup::default()
        };
        let narrow = "function (doc) { emit(doc._id, doc.a.b); }";
        let whole = "function (doc) { emit(doc._id, doc); }";
        let members = r#"["_id","a.b"]"#.to_owned();
        assert_eq!(functions.projections(&group(&[narrow])), [Ok(members)]);
        let both = functions.projections(&group(&[narrow, whole]));
        assert!(both.iter().all(Result::is_err), "{both:?}");
        let docs = [
            (
                r#""_id":"x","_rev":"1-a""#,
                r#"{"z":1,"a":{"c":2,"b":[3]},"y":4}"#,
            ),
            (r#""_id":"y","_rev":"1-a""#, r#"{"a":{}}"#),
            (r#""_id":"z","_rev":"1-a""#, r#"{}"#),
        ];
        let docs = docs.map(|(members, body)| Doc {
            members: members.as_bytes(),
            body: body.as_bytes(),
        });
        for maps in [&[narrow][..], &[narrow, whole]] {
            let mut mapper = functions.mapper(&group(maps)).expect("a mapper");
            let mut out = Emits::default();
            mapper.map(&docs, &mut out).expect("rows");
            let rows: Vec<_> = out
                .rows
                .iter()
                .filter(|row| row.view == 0)
                .map(|row| {
                    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                    (row.doc, text(out.key(row)), text(out.value(row)))
                })
                .collect();
            let row = |doc, key: &str, value: &str| (doc, key.to_owned(), value.to_owned());
            assert_eq!(rows, [row(0, "\"x\"", "[3]"), row(1, "\"y\"", "null")]);
        }
    }

    #[test]
    fn a_query_server_for_javascript_replaces_the_engine() {
        let functions = functions();
        let settings = Settings {
            commands: [(JAVASCRIPT.to_owned(), "/bin/false".to_owned())].into(),
            ..Settings::default()
        };
        functions.configure(settings);
        let place = place();
        assert!(matches!(
            functions.check(&place, JAVASCRIPT, "function(doc) {}", None),
            Err(Error::Process(_))
        ));
    }
}
