//! Query servers that misbehave: a fake one, whose map function determines its behaviour for each
//! document.

use crate::common;

use std::time::Duration;

use common::{Fake, group, map, map_with, row};
use query_server::language::Error;
use query_server::{Pools, Settings};

const DOCS: &[&str] = &["{}", r#"{"a":1}"#, "{}", "{}"];

/// Returns the result of mapping four documents, and checks that the language works for the next
/// user and leaves nothing behind.
fn outcome(words: &str) -> Result<Vec<common::Row>, Error> {
    outcome_with(words, |_| {})
}

fn outcome_with(
    words: &str,
    change: impl FnOnce(&mut Settings),
) -> Result<Vec<common::Row>, Error> {
    let fake = Fake::new();
    let mut settings = fake.settings();
    change(&mut settings);
    let is_impatient = settings.timeout < fake.settings().timeout;
    let pools = Pools::new(settings).expect("a thread");
    let result = map(&pools, &group("fake", &[words]), DOCS);
    if is_impatient {
        pools.configure(fake.settings());
    }
    let next = map(&pools, &group("fake", &["ok"]), &["{}"]);
    assert_eq!(
        next,
        Ok(vec![row(0, 0, "\"d0\"", "null")]),
        "the next user after {words}"
    );
    assert_eq!(
        pools.counts("fake").0,
        0,
        "a process counts as in use after {words}"
    );
    drop(pools);
    fake.assert_nothing_left();
    result
}

fn all_rows() -> Vec<common::Row> {
    (0..4)
        .map(|n| row(n, 0, &format!("\"d{n}\""), "null"))
        .collect()
}

fn is_process_error(result: &Result<Vec<common::Row>, Error>) -> bool {
    matches!(result, Err(Error::Process(_)))
}

fn is_timeout(result: &Result<Vec<common::Row>, Error>) -> bool {
    *result
        == Err(Error::Limit {
            limit: "os_process_timeout",
            value: "1000".to_owned(),
        })
}

#[test]
fn log_lines_and_blank_lines_may_come_at_any_time() {
    assert_eq!(outcome("log"), Ok(all_rows()));
    assert_eq!(outcome("blank"), Ok(all_rows()));
    assert_eq!(outcome("log blank log"), Ok(all_rows()));
}

#[test]
fn a_document_that_is_answered_with_an_error_has_no_rows() {
    let mut rows = all_rows();
    rows.remove(1);
    assert_eq!(outcome("ok error ok"), Ok(rows.clone()));
    assert_eq!(outcome("ok forbidden ok"), Ok(rows.clone()));
    assert_eq!(outcome("ok deep ok"), Ok(rows));
}

#[test]
fn fatal_errors_end_the_process_and_the_call() {
    let thrown = |name: &str, reason: &str| {
        Err(Error::Thrown {
            name: name.to_owned(),
            reason: reason.to_owned(),
        })
    };
    assert_eq!(outcome("ok fatal"), thrown("fatal_error", "it is over"));
    assert_eq!(outcome("ok error_object"), thrown("bad", "it is bad"));
}

#[test]
fn answers_that_are_nonsense_end_the_process_and_the_call() {
    for word in [
        "garbage",
        "binary",
        "other",
        "more_views",
        "pairless",
        "twice",
    ] {
        let result = outcome(&format!("ok {word}"));
        assert!(is_process_error(&result), "{word}: {result:?}");
    }
}

#[test]
fn a_process_that_dies_fails_the_call_and_is_replaced() {
    for (word, how) in [
        ("exit", "exited with status 3"),
        ("exit_half", "exited with status 0"),
        ("killed", "was ended by signal 9"),
        ("close", "was ended by signal 9"),
    ] {
        let result = outcome(&format!("ok {word}"));
        let Err(Error::Process(message)) = &result else {
            panic!("{word}: {result:?}")
        };
        assert!(message.ends_with(how), "{word}: {message}");
    }
}

#[test]
fn a_function_that_never_answers_is_killed() {
    for word in ["hang", "spin", "half", "log_flood", "stderr_flood"] {
        let result = outcome_with(&format!("ok {word}"), |settings| {
            settings.timeout = Duration::from_secs(1)
        });
        assert!(is_timeout(&result), "{word}: {result:?}");
    }
}

#[test]
fn the_error_output_blocks_nobody() {
    assert_eq!(outcome("stderr"), Ok(all_rows()));
    assert_eq!(outcome("close_stderr ok"), Ok(all_rows()));
}

#[test]
fn very_long_answers_are_read_up_to_a_limit() {
    let rows = outcome_with("ok long ok", |settings| {
        settings.timeout = Duration::from_secs(60)
    })
    .unwrap();
    assert_eq!(rows[1].2.len(), (100 << 20) + 2);
    assert_eq!((rows.len(), &rows[3]), (4, &all_rows()[3]));
    for word in ["long", "endless"] {
        let result = outcome_with(&format!("ok {word}"), |settings| {
            settings.answer_bytes_max = 10 << 20;
        });
        assert!(is_process_error(&result), "{word}");
    }
}

#[test]
fn numbers_that_json_has_not_are_null() {
    assert_eq!(
        outcome("nan ok").map(|rows| rows[0].clone()),
        Ok(row(0, 0, "null", "[null,null]"))
    );
}

#[test]
fn full_pipes_in_both_directions_do_not_block_each_other() {
    let fake = Fake::new();
    let pools = Pools::new(fake.settings()).unwrap();
    // Together far more than pipes hold, and more than is sent ahead.
    let body = format!(r#"{{"a":"{}"}}"#, "x".repeat(100_000));
    let bodies = vec![body.as_str(); 300];
    let rows = map(&pools, &group("fake", &["slow"]), &bodies).unwrap();
    assert_eq!(rows.len(), 300);
    assert!(
        rows.iter()
            .enumerate()
            .all(|(n, row)| row.0 == n as u32 && row.2.len() == 100_002)
    );
}

#[test]
fn a_document_larger_than_what_is_sent_ahead_is_mapped() {
    let fake = Fake::new();
    let pools = Pools::new(fake.settings()).unwrap();
    let body = format!(r#"{{"a":"{}"}}"#, "x".repeat(8 << 20));
    let rows = map(&pools, &group("fake", &["echo"]), &["{}", &body, "{}"]).unwrap();
    assert_eq!(
        rows.iter()
            .map(|row| row.3.len() > 8 << 20)
            .collect::<Vec<_>>(),
        [false, true, false]
    );
}

#[test]
fn documents_come_as_the_members_and_the_body_together() {
    let fake = Fake::new();
    let pools = Pools::new(fake.settings()).unwrap();
    let rows = map(
        &pools,
        &group("fake", &["echo"]),
        &["{}", "{\"a\":\n[1.5,\"é\"]}"],
    )
    .unwrap();
    let members = |n: u32| format!(r#""_id":"d{n}","_rev":"1-967a00dff5e02add41819138abb3284d""#);
    assert_eq!(rows[0].3, format!("{{{}}}", members(0)));
    assert_eq!(rows[1].3, format!(r#"{{{},"a":[1.5,"é"]}}"#, members(1)));
}

#[test]
fn nothing_is_asked_without_documents_or_without_functions() {
    let fake = Fake::new();
    let pools = Pools::new(fake.settings()).unwrap();
    assert_eq!(map(&pools, &group("fake", &["exit"]), &[]), Ok(vec![]));
    assert_eq!(map(&pools, &group("fake", &[]), DOCS), Ok(vec![]));
    assert!(fake.pids().is_empty());
}

#[test]
fn the_processes_of_a_killed_server_are_killed_too() {
    let fake = Fake::new();
    let pools = Pools::new(fake.settings()).unwrap();
    map(&pools, &group("fake", &["children"]), &["{}"]).unwrap();
    let pids = fake.pids();
    assert_eq!(pids.len(), 3);
    drop(pools);
    // They are not children of this process: their new parent reaps them.
    pids.into_iter().for_each(common::wait_until_gone);
}

#[test]
fn a_command_that_cannot_be_started_is_said() {
    let mut settings = Settings::default();
    for (language, command) in [
        ("missing", "/nonexistent/program"),
        ("unsplit", "python3 'x"),
        ("empty", "''"),
        ("unknown", "@settee/cobol"),
        ("silent", "true"),
        ("garbage", "cat"),
    ] {
        settings
            .commands
            .insert(language.to_owned(), command.to_owned());
    }
    let pools = Pools::new(settings).unwrap();
    for language in [
        "missing", "unsplit", "empty", "unknown", "silent", "garbage",
    ] {
        for _ in 0..2 {
            let result = map(&pools, &group(language, &["x"]), &["{}"]);
            assert!(is_process_error(&result), "{language}: {result:?}");
            assert_eq!(pools.counts(language), (0, 0));
        }
    }
    let unknown = Err(Error::UnknownLanguage("fortran".to_owned()));
    assert_eq!(map(&pools, &group("fortran", &["x"]), &["{}"]), unknown);
}

#[test]
fn a_mapper_goes_on_after_its_process_died() {
    let fake = Fake::new();
    let pools = Pools::new(fake.settings()).unwrap();
    let mut mapper = pools.mapper(&group("fake", &["ok ok exit"])).unwrap();
    assert_eq!(
        map_with(&mut *mapper, &["{}", "{}"]).map(|rows| rows.len()),
        Ok(2)
    );
    assert!(is_process_error(&map_with(&mut *mapper, &["{}"])));
    assert_eq!(
        map_with(&mut *mapper, &["{}", "{}"]).map(|rows| rows.len()),
        Ok(2)
    );
}

/// Not a standalone test: the server that [`processes_die_with_the_server`] kills.
#[test]
#[ignore = "run by another test"]
fn a_server_with_a_hung_process() {
    let fake = Fake::new();
    println!("{}", fake.path("pids").display());
    let pools = Pools::new(Settings {
        timeout: Duration::from_secs(600),
        ..fake.settings()
    });
    let result = map(&pools.unwrap(), &group("fake", &["hang"]), &["{}"]);
    panic!("nobody killed it: {result:?}");
}

#[test]
fn processes_die_with_the_server() {
    let mut server = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "nasty::a_server_with_a_hung_process",
            "--nocapture",
        ])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::BufReader::new(server.stdout.take().unwrap());
    let pids = std::io::BufRead::lines(output)
        .map(Result::unwrap)
        .find_map(|line| line.find('/').map(|start| line[start..].to_owned()))
        .unwrap();
    let pid = loop {
        match std::fs::read_to_string(&pids)
            .ok()
            .and_then(|text| text.trim().parse().ok())
        {
            Some(pid) => break pid,
            None => assert_eq!(server.try_wait().unwrap(), None),
        }
    };
    // The process waits in its function, and would not notice that its input is closed.
    server.kill().unwrap();
    server.wait().unwrap();
    common::wait_until_gone(pid);
    std::fs::remove_dir_all(std::path::Path::new(&pids).parent().unwrap()).unwrap();
}
