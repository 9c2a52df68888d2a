//! Design functions by the protocol: what processes are taught, and how a list is a dialogue.

use crate::common;

use common::{Fake, ddoc};
use query_server::language::{DesignDoc, Designs, Error, ListIo};
use query_server::{Pools, Settings};

fn show(designs: &mut dyn Designs, ddoc: &DesignDoc) -> String {
    let answer = designs.call(ddoc, &["shows", "s"], b"[null,\n{}]");
    String::from_utf8(answer.expect("an answer")).expect("UTF-8")
}

#[test]
fn design_documents_are_taught_once_and_again_when_they_changed() {
    let fake = Fake::new();
    let pools = Pools::new(Settings {
        process_limit: 1,
        ..fake.settings()
    })
    .unwrap();
    let mut designs = pools.designs("db", "fake").unwrap();
    let (a, b) = (
        ddoc("_design/a", "1-a", r#"{"n":1}"#),
        ddoc("_design/b", "1-b", r#"{"n":2}"#),
    );
    let newer = ddoc("_design/a", "1-a", r#"{"n":3}"#);
    for (ddoc, n) in [
        (&a, 1),
        (&a, 1),
        (&b, 2),
        (&a, 1),
        (&newer, 3),
        (&newer, 3),
        (&a, 1),
        (&b, 2),
    ] {
        assert_eq!(
            show(&mut *designs, ddoc),
            format!(r#"["resp",{{"ddoc":{{"n":{n}}},"path":["shows","s"],"args":[null,{{}}]}}]"#)
        );
    }
    let taught: Vec<_> = fake
        .events()
        .into_iter()
        .filter(|event| event.starts_with("ddoc new"))
        .collect();
    assert_eq!(
        taught,
        ["_design/a", "_design/b", "_design/a", "_design/a"].map(|id| format!("ddoc new {id}"))
    );
    assert_eq!(
        fake.events()
            .iter()
            .filter(|event| *event == "reset")
            .count(),
        1
    );
}

#[test]
fn a_process_is_not_taught_design_documents_without_end() {
    let fake = Fake::new();
    let pools = Pools::new(Settings {
        process_limit: 1,
        ..fake.settings()
    })
    .unwrap();
    let mut designs = pools.designs("db", "fake").unwrap();
    for n in 0..100 {
        show(&mut *designs, &ddoc(&format!("_design/{n}"), "1-a", "{}"));
    }
    assert_eq!(fake.pids().len(), 4);
    drop((designs, pools));
    fake.assert_nothing_left();
}

#[test]
fn validations_pass_or_say_why_not() {
    let fake = Fake::new();
    let pools = Pools::new(fake.settings()).unwrap();
    let mut designs = pools.designs("db", "fake").unwrap();
    let ddoc = ddoc("_design/v", "1-a", "{}");
    let mut validate = |what: &str| {
        let args = format!(r#"[{{"do":"{what}"}},null,{{}},{{}}]"#);
        designs.call(&ddoc, &["validate_doc_update"], args.as_bytes())
    };
    assert_eq!(validate("pass"), Ok(b"1".to_vec()));
    assert_eq!(validate("one"), Ok(b"1".to_vec()));
    assert_eq!(
        validate("forbid"),
        Err(Error::Forbidden("no \"way\"".to_owned()))
    );
    assert_eq!(
        validate("login"),
        Err(Error::Unauthorized("who?".to_owned()))
    );
    assert_eq!(
        validate("error"),
        Err(Error::Thrown {
            name: "oops".to_owned(),
            reason: "went wrong".to_owned()
        })
    );
    assert_eq!(validate("pass"), Ok(b"1".to_vec()));
    assert_eq!(fake.pids().len(), 1);
}

/// Collects the output of a list; fails at the row of this number, if any.
#[derive(Default)]
struct Collected {
    rows: Vec<&'static str>,
    fails_at: Option<usize>,
    text: String,
    taken: usize,
}

impl ListIo for Collected {
    fn start(&mut self, response: &[u8]) -> Result<(), Error> {
        self.text
            .push_str(std::str::from_utf8(response).expect("UTF-8"));
        Ok(())
    }
    fn chunk(&mut self, text: &str) -> Result<(), Error> {
        self.text.push_str(text);
        Ok(())
    }
    fn row(&mut self) -> Result<Option<Vec<u8>>, Error> {
        if self.fails_at == Some(self.taken) {
            return Err(Error::Process("the client went away".to_owned()));
        }
        self.taken += 1;
        Ok(self
            .rows
            .get(self.taken - 1)
            .map(|row| row.as_bytes().to_vec()))
    }
}

#[test]
fn lists_are_a_dialogue_that_may_end_in_many_ways() {
    let fake = Fake::new();
    let pools = Pools::new(Settings {
        process_limit: 1,
        ..fake.settings()
    })
    .unwrap();
    let mut designs = pools.designs("db", "fake").unwrap();
    let ddoc = ddoc("_design/l", "1-a", "{}");
    let mut list = |name: &str, fails_at: Option<usize>| {
        let mut io = Collected {
            rows: vec![r#"{"id":"a"}"#, r#"{"id":"b"}"#],
            fails_at,
            ..Collected::default()
        };
        let result = designs.list(&ddoc, &["lists", name], b"[{},{}]", &mut io);
        (result, io.text)
    };
    let head = r#"{"headers":{"X":"y"}}"#.to_owned() + "head\n";
    assert_eq!(list("all", None), (Ok(()), format!("{head}aé\tbé\ttail5")));
    assert_eq!(list("short", None), (Ok(()), format!("{head}tail5")));
    let gone = || Err(Error::Process("the client went away".to_owned()));
    assert_eq!(list("all", Some(1)), (gone(), format!("{head}aé\t")));
    let broke = Error::Thrown {
        name: "list_broke".to_owned(),
        reason: "in the middle".to_owned(),
    };
    assert_eq!(list("error", None), (Err(broke), head.clone()));
    assert_eq!(
        fake.pids().len(),
        1,
        "none of these is a reason to end the process"
    );
    let (result, _) = list("odd", None);
    assert!(matches!(result, Err(Error::Process(_))), "{result:?}");
    assert_eq!(list("short", None).0, Ok(()));
    assert_eq!(fake.pids().len(), 2);
}
