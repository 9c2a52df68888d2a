//! `settee load` into a fake server: every format and source, and the reports on documents that
//! cannot be loaded.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "../../bench/tests/it/fake/mod.rs"]
#[allow(dead_code, reason = "the tests of crates/bench need more of it")]
mod fake;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;

use fake::Fake;
use flate2::Compression;
use flate2::write::GzEncoder;
use load::{InputFormat, LoadCause, LoadError, LoadOptions, LoadReport, load, preview};
use serde_json::json;

async fn loaded_with(
    fake: &Fake,
    source: &str,
    options: LoadOptions,
) -> Result<LoadReport, LoadError> {
    load(LoadOptions {
        source: source.to_owned(),
        url: fake.url.clone(),
        db: "db".to_owned(),
        ..options
    })
    .await
}

/// Loads a file of this content into a new server.
async fn loaded(
    content: impl AsRef<[u8]>,
    options: LoadOptions,
) -> (Fake, Result<LoadReport, LoadError>) {
    let fake = Fake::start().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("input");
    fs::write(&file, content).unwrap();
    let result = loaded_with(&fake, file.to_str().unwrap(), options).await;
    (fake, result)
}

async fn ids_of(content: impl AsRef<[u8]>) -> Vec<String> {
    let (fake, result) = loaded(content, LoadOptions::default()).await;
    let report = result.unwrap();
    assert!(report.refused.is_empty(), "{report}");
    assert_eq!(report.read, report.written);
    fake.documents("db").into_keys().collect()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

const LINES: &str = "{\"_id\":\"a\",\"n\":1}\n{\"_id\":\"b\"}\r\n\n{\"_id\":\"c\"}";

#[tokio::test]
async fn the_format_is_told_from_the_content() {
    let three = ["a", "b", "c"];
    for content in [
        "[{\"_id\":\"a\"}, {\"_id\":\"b\"},\n{\"_id\":\"c\"}]",
        LINES,
        "\u{feff}[{\"_id\":\"a\"},{\"_id\":\"b\"},{\"_id\":\"c\"}]",
        r#"{"docs":[{"_id":"a"},{"_id":"b"},{"_id":"c"}]}"#,
        r#"{"new_edits":false,"docs":[{"_id":"a"},{"_id":"b"},{"_id":"c"}]}"#,
        "{\"_id\":\"a\"}{\"_id\":\"b\"} {\n\"_id\":\"c\"\n}",
        "{\"name\":\"@cloudant/couchbackup\",\"version\":\"2.11.1\",\"mode\":\"full\"}\n[{\"_id\":\"a\"},{\"_id\":\"b\"}]\n[]\n[{\"_id\":\"c\"}]\n",
        r#"{"total_rows":3,"offset":0,"rows":[{"id":"a","key":"a","value":{"rev":"1-a"},"doc":{"_id":"a","_rev":"1-a"}},
           {"id":"b","doc":{"_id":"b","_rev":"1-a"}},{"id":"c","doc":{"_id":"c","_rev":"1-a"}}]}"#,
        r#"{"results":[{"seq":1,"id":"a","doc":{"_id":"a"}},{"seq":2,"doc":{"_id":"b"}},{"doc":{"_id":"c"}}],"last_seq":3,"pending":0}"#,
    ] {
        assert_eq!(ids_of(content).await, three, "{content}");
        assert_eq!(ids_of(gzip(content)).await, three, "gzip of {content}");
    }
    assert_eq!(ids_of(r#"{"_id":"only","rows":[1,2]}"#).await, ["only"]);
    assert!(ids_of("").await.is_empty());
    assert!(ids_of("[]").await.is_empty());
    assert!(ids_of(r#"{"rows":[]}"#).await.is_empty());
}

#[tokio::test]
async fn documents_with_a_revision_keep_it() {
    let (fake, result) = loaded(
        "[{\"_id\":\"a\",\"_rev\":\"3-c\"},{\"_id\":\"b\"}]",
        LoadOptions::default(),
    )
    .await;
    assert_eq!(result.unwrap().written, 2);
    assert_eq!(fake.contents.lock().unwrap().replicated, ["a"]);
    assert_eq!(fake.documents("db")["a"]["_rev"], "3-c");
}

#[tokio::test]
async fn ids_come_from_a_member_or_from_the_names() {
    let options = LoadOptions {
        id_field: Some("code".to_owned()),
        ..LoadOptions::default()
    };
    let (fake, result) = loaded(r#"[{"code":"x"},{"code":7},{"name":"none"}]"#, options).await;
    let report = result.unwrap();
    assert_eq!(
        (report.read, report.written, report.refused_count()),
        (3, 2, 1)
    );
    assert_eq!(report.refused[0].first_ids, ["at line 1, byte offset 25"]);
    assert_eq!(
        fake.documents("db").into_keys().collect::<Vec<_>>(),
        ["7", "x"]
    );

    let options = LoadOptions {
        id_from_key: true,
        ..LoadOptions::default()
    };
    let (fake, result) = loaded(r#"{"a":{"n":1},"b\n":{}, "c":5}"#, options).await;
    let report = result.unwrap();
    assert_eq!(
        (report.written, report.refused[0].reason.as_str()),
        (2, "not an object")
    );
    assert_eq!(fake.documents("db")["a"]["n"], json!(1));
    assert!(fake.documents("db").contains_key("b\n"));
}

#[tokio::test]
async fn rows_of_csv_become_documents() {
    let options = LoadOptions {
        format: Some(InputFormat::Csv),
        id_field: Some("zip".to_owned()),
        ..LoadOptions::default()
    };
    let rows = "zip;n\n01234;1\n;2\n98765;x;y\n";
    for content in [rows.as_bytes().to_vec(), gzip(rows)] {
        let (fake, result) = loaded(content, options.clone()).await;
        let report = result.unwrap();
        assert_eq!(
            (report.read, report.written, report.refused_count()),
            (3, 1, 2)
        );
        let found = fake.documents("db");
        assert_eq!(found["01234"]["n"], json!("1"), "x makes the column text");
    }
}

#[tokio::test]
async fn a_preview_reads_ten_documents_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("input.csv");
    let rows: String = (0..100).map(|n| format!("{n},a\n")).collect();
    fs::write(&file, format!("n,name\n{rows}")).unwrap();
    let options = LoadOptions {
        source: file.to_str().unwrap().to_owned(),
        ..LoadOptions::default()
    };
    let preview = preview(options).await.unwrap();
    assert_eq!(preview.documents.len(), 10);
    let layout = preview.layout.unwrap();
    let types = layout.columns.iter().map(|column| column.column_type);
    let types: Vec<String> = types.map(|column_type| column_type.to_string()).collect();
    assert_eq!(types, ["integer", "text"]);
}

#[tokio::test]
async fn refused_documents_are_grouped_and_the_others_written() {
    let content = r#"[{"_id":"a"},{"_id":"conflict-1"},{"_id":"poison"},{"_id":"b"},{"_id":"conflict-2"},
        {"_id":"s","_attachments":{"x":{"stub":true}}}, 12]"#;
    let (fake, result) = loaded(content, LoadOptions::default()).await;
    let report = result.unwrap();
    assert_eq!(
        (report.read, report.written, report.refused_count()),
        (7, 2, 5)
    );
    let reasons: BTreeSet<(&str, u64)> = report
        .refused
        .iter()
        .map(|refusal| (refusal.reason.as_str(), refusal.count))
        .collect();
    assert!(
        reasons.contains(&("Document update conflict.", 2)),
        "{reasons:?}"
    );
    assert!(reasons.contains(&("poisoned", 1)), "{reasons:?}");
    assert_eq!(
        fake.documents("db").into_keys().collect::<Vec<_>>(),
        ["a", "b"]
    );
}

#[tokio::test]
async fn truncated_input_names_its_place_after_loading_what_was_complete() {
    for (content, place) in [
        (
            "{\"_id\":\"a\"}\n{\"_id\":\"b\",\"x\":",
            "line 2, byte offset 27",
        ),
        ("[{\"_id\":\"a\"},", "line 1, byte offset 13"),
        (
            "{\"rows\":[{\"doc\":{\"_id\":\"a\"}}\n",
            "line 2, byte offset 29",
        ),
    ] {
        let (fake, result) = loaded(content, LoadOptions::default()).await;
        let error = result.unwrap_err();
        assert!(matches!(error.cause, LoadCause::Input(_)));
        let text = error.to_string();
        assert!(
            text.contains("the input ends") && text.contains(place),
            "{text}"
        );
        assert_eq!(error.report.written, 1);
        assert!(fake.documents("db").contains_key("a"));
    }
    let whole = gzip(LINES);
    let (_, result) = loaded(&whole[..whole.len() - 12], LoadOptions::default()).await;
    assert!(result.is_err());
}

#[tokio::test]
async fn invalid_input_names_its_place() {
    for (content, expected) in [
        (
            &b"{\"_id\":\"a\"}\n{\"_id\":\"\xff\"}"[..],
            "invalid UTF-8 at line 2, byte offset 20",
        ),
        (
            b"{\"_id\":\"a\"}\n{\"_id\":nul}",
            "at line 2, byte offset 22",
        ),
        (
            b"[{\"_id\":\"a\"} {\"_id\":\"b\"}]",
            "expected ',' or ']', found '{' at line 1, byte offset 13",
        ),
        (
            b"id,name\n1,x\n",
            "expected a JSON object or array (for CSV: --format csv), found 'i' at line 1, byte offset 0",
        ),
    ] {
        let (_, result) = loaded(content, LoadOptions::default()).await;
        let text = result.unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn a_folder_gives_each_single_document_its_path_as_id() {
    let fake = Fake::start().await;
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("api")).unwrap();
    fs::write(dir.path().join("api/One.json"), "{\"n\":1}\n").unwrap();
    fs::write(dir.path().join("two.json"), "{\"_id\":\"own\"}").unwrap();
    fs::write(dir.path().join("lines.jsonl"), LINES).unwrap();
    fs::write(dir.path().join("more.jsonl.gz"), gzip("{\"_id\":\"d\"}")).unwrap();
    fs::write(dir.path().join("readme.txt"), "no JSON").unwrap();
    let report = loaded_with(&fake, dir.path().to_str().unwrap(), LoadOptions::default())
        .await
        .unwrap();
    assert_eq!(report.written, 6);
    let ids: Vec<String> = fake.documents("db").into_keys().collect();
    assert_eq!(ids, ["a", "api/One.json", "b", "c", "d", "own"]);
}

#[tokio::test]
async fn many_documents_arrive_through_small_batches() {
    let content: String = (0..5_000)
        .map(|n| format!("{{\"_id\":\"{n:05}\",\"n\":{n}}}\n"))
        .collect();
    let options = LoadOptions {
        batch_docs: 64,
        batch_bytes: 1_000,
        parallel: 3,
        ..LoadOptions::default()
    };
    let (fake, result) = loaded(content, options).await;
    let report = result.unwrap();
    assert!(report.database_created);
    assert_eq!((report.written, fake.documents("db").len()), (5_000, 5_000));
}

#[tokio::test]
async fn a_url_is_a_file_or_a_database() {
    let fake = Fake::start().await;
    let file = format!("{}/files/lines.jsonl", fake.url);
    let report = loaded_with(&fake, &file, LoadOptions::default())
        .await
        .unwrap();
    assert_eq!(report.written, 2);

    let source = Fake::start().await;
    let documents = (0..1_234)
        .map(|n| (format!("doc {n:04}"), json!({ "n": n })))
        .collect();
    source
        .contents
        .lock()
        .unwrap()
        .databases
        .insert("from".to_owned(), documents);
    let target = Fake::start().await;
    let database = format!("{}/from", source.url);
    let report = loaded_with(&target, &database, LoadOptions::default())
        .await
        .unwrap();
    assert_eq!((report.read, report.written), (1_234, 1_234));
    assert_eq!(target.documents("db").len(), 1_234);
    assert_eq!(target.contents.lock().unwrap().replicated.len(), 1_234);
}

#[tokio::test]
async fn a_server_that_refuses_stops_the_load_with_its_answer() {
    let fake = Fake::start().await;
    let options = LoadOptions {
        create: false,
        ..LoadOptions::default()
    };
    let error = loaded_with(&fake, "/dev/null", options).await.unwrap_err();
    assert!(
        matches!(error.cause, LoadCause::Refused { status: 404, .. }),
        "{error}"
    );
    assert!(!error.to_string().contains("secret"));
    let error = loaded_with(&fake, "/no/such/file", LoadOptions::default())
        .await
        .unwrap_err();
    assert!(error.to_string().starts_with("/no/such/file: "), "{error}");
}
