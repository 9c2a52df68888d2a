//! Documents as records, with only the members that functions access, give the same rows as whole
//! documents.

#[path = "../../../projection/src/tests/choices.rs"]
#[allow(dead_code, reason = "it serves the tests of projection")]
mod choices;
#[path = "../../../projection/src/tests/followed.rs"]
mod followed;

use choices::Choices;
use followed::FOLLOWED;
use functions::js::{Engine, Options};
use functions::query_server::Settings;
use functions::{Doc, Emits, Functions, Languages, MapGroup, Mapper};

/// Returns the rows of all functions, document by document, as text.
fn rows_by(mapper: &mut dyn Mapper, documents: &[(String, String)]) -> Vec<String> {
    let docs: Vec<_> = documents
        .iter()
        .map(|(members, body)| Doc {
            members: members.as_bytes(),
            body: body.as_bytes(),
        })
        .collect();
    let mut out = Emits::default();
    mapper.map(&docs, &mut out).expect("rows");
    let text = |bytes| String::from_utf8_lossy(bytes);
    out.rows
        .iter()
        .map(|row| {
            let (key, value) = (text(out.key(row)), text(out.value(row)));
            format!("{} {} {key} {value}", row.doc, row.view)
        })
        .collect()
}

#[test]
fn the_engine_gives_the_same_rows_for_records_as_for_whole_documents() {
    let engine = Engine::new(Options::default());
    let functions = Functions::new(Options::default(), Settings::default()).unwrap();
    let mut choices = Choices(29);
    let mut emitted = 0;
    // CouchDB does not accept named functions.
    let compiles = |source: &&str| engine.check(source, None).is_ok();
    let sources: Vec<&str> = FOLLOWED.iter().map(|f| f.0).filter(compiles).collect();
    let mut groups: Vec<Vec<&str>> = sources.iter().map(|source| vec![*source]).collect();
    for _ in 0..40 {
        let count = 2 + choices.below(4);
        let group = (0..count).map(|_| sources[choices.below(sources.len())]);
        groups.push(group.collect());
    }
    for sources in groups {
        let group = MapGroup {
            language: "javascript".to_owned(),
            maps: sources.iter().map(|source| (*source).to_owned()).collect(),
            ..MapGroup::default()
        };
        let projections = functions.projections(&group);
        assert!(projections.iter().all(Result::is_ok), "{projections:?}");
        let documents = choices.documents(60);
        let whole = rows_by(&mut *engine.mapper(&group).unwrap(), &documents);
        let records = rows_by(&mut *functions.mapper(&group).unwrap(), &documents);
        assert_eq!(whole, records, "{sources:?} takes {projections:?}");
        emitted += whole.len();
    }
    assert!(emitted > 5_000, "{emitted}");
}
