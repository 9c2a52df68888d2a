//! Leases of processes: which process, for how long, and its state.

use crate::common;

use std::sync::{Arc, Barrier};
use std::time::Duration;

use common::{Fake, ddoc, group, map, map_with, row, wait_until_gone};
use query_server::language::{
    Doc, EMITS_BYTES_MAX, Emits, Error, ListIo, MapGroup, Owner, ReduceRow,
};
use query_server::{Pools, ReduceLimit, Settings};

#[test]
fn no_more_processes_than_the_limit_serve_many_threads() {
    let fake = Fake::new();
    let pools = Pools::new(Settings {
        process_limit: 3,
        ..fake.settings()
    })
    .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let pools = pools.clone();
            scope.spawn(move || {
                // Half of the threads share functions, so that some processes are reset in between
                // and some are not.
                let words = if thread % 2 == 0 {
                    "count"
                } else {
                    "count count"
                };
                for _ in 0..10 {
                    let rows = map(&pools, &group("fake", &[words]), &["{}", "{}"]).unwrap();
                    assert_eq!(rows.len(), 2);
                }
            });
        }
    });
    assert!(fake.pids().len() <= 3);
    let mut inside = 0;
    for event in fake.events() {
        match event.as_str() {
            "in" => inside += 1,
            "out" => inside -= 1,
            _ => {}
        }
        assert!(inside <= 3);
    }
    assert_eq!(pools.counts("fake"), (0, fake.pids().len()));
    drop(pools);
    fake.assert_nothing_left();
}

#[test]
fn processes_that_die_under_many_threads_are_replaced_and_none_is_left() {
    let fake = Fake::new();
    let pools = Pools::new(Settings {
        process_limit: 2,
        ..fake.settings()
    })
    .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let pools = pools.clone();
            scope.spawn(move || {
                for _ in 0..4 {
                    let words = ["ok", "ok exit", "ok garbage", "ok fatal"][thread % 4];
                    let result = map(&pools, &group("fake", &[words]), &["{}", "{}"]);
                    assert_eq!(result.is_ok(), thread % 4 == 0, "{words}: {result:?}");
                }
            });
        }
    });
    let (used, idle) = pools.counts("fake");
    assert!(used == 0 && idle <= 2, "{used}, {idle}");
    drop(pools);
    fake.assert_nothing_left();
}

/// A list whose first row is only given when the test releases it: it holds its process until then.
struct Held {
    holds: Arc<Barrier>,
    go_on: Arc<Barrier>,
}

impl ListIo for Held {
    fn start(&mut self, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }
    fn chunk(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }
    fn row(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.holds.wait();
        self.go_on.wait();
        Ok(None)
    }
}

#[test]
fn who_waits_too_long_for_a_process_is_told_the_limit() {
    let fake = Fake::new();
    let settings = Settings {
        process_limit: 1,
        wait: Duration::from_millis(50),
        ..fake.settings()
    };
    let pools = Pools::new(settings).unwrap();
    let (holds, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let mut held = Held {
        holds: holds.clone(),
        go_on: go_on.clone(),
    };
    let mut designs = pools.designs("db", "fake").unwrap();
    let holder = std::thread::spawn(move || {
        designs.list(
            &ddoc("_design/d", "1-a", "{}"),
            &["lists", "all"],
            b"[{},{}]",
            &mut held,
        )
    });
    holds.wait();
    assert_eq!(
        map(&pools, &group("fake", &["ok"]), &["{}"]),
        Err(Error::Limit {
            limit: "os_process_limit",
            value: "1".to_owned()
        })
    );
    go_on.wait();
    holder.join().unwrap().unwrap();
    assert_eq!(
        map(&pools, &group("fake", &["ok"]), &["{}"]).map(|rows| rows.len()),
        Ok(1)
    );
    assert_eq!(fake.pids().len(), 1);
}

#[test]
fn a_higher_limit_lets_those_who_wait_go_on() {
    let fake = Fake::new();
    let settings = Settings {
        process_limit: 1,
        ..fake.settings()
    };
    let pools = Pools::new(settings.clone()).unwrap();
    let (holds, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let mut held = Held {
        holds: holds.clone(),
        go_on: go_on.clone(),
    };
    let mut designs = pools.designs("db", "fake").unwrap();
    let holder = std::thread::spawn(move || {
        designs.list(
            &ddoc("_design/d", "1-a", "{}"),
            &["lists", "all"],
            b"[{},{}]",
            &mut held,
        )
    });
    holds.wait();
    let waiter = std::thread::spawn({
        let pools = pools.clone();
        move || map(&pools, &group("fake", &["ok"]), &["{}"]).map(|rows| rows.len())
    });
    // Whether the other thread waits already or not, it is served without the first being done.
    pools.configure(Settings {
        process_limit: 2,
        ..settings
    });
    assert_eq!(waiter.join().unwrap(), Ok(1));
    go_on.wait();
    holder.join().unwrap().unwrap();
}

#[test]
fn a_process_keeps_its_functions_for_the_same_user_and_is_reset_for_another() {
    let fake = Fake::new();
    let pools = Pools::new(Settings {
        process_limit: 1,
        ..fake.settings()
    })
    .unwrap();
    let with_lib = MapGroup {
        lib: Some(r#"{"m":"x"}"#.to_owned()),
        ..group("fake", &["ok"])
    };
    for _ in 0..3 {
        map(&pools, &with_lib, &["{}"]).unwrap();
    }
    map(&pools, &group("fake", &["ok ok"]), &["{}"]).unwrap();
    map(&pools, &with_lib, &["{}"]).unwrap();
    assert_eq!(
        fake.events(),
        [
            "reset",
            "add_lib",
            "add_fun ok",
            "reset",
            "add_fun ok ok",
            "reset",
            "add_lib",
            "add_fun ok"
        ]
    );
    assert_eq!(
        std::fs::read_to_string(fake.path("libs"))
            .unwrap()
            .lines()
            .next(),
        Some(r#"["add_lib",{"m":"x"}]"#)
    );
}

#[test]
fn a_process_is_reset_for_the_same_functions_of_another_database() {
    let fake = Fake::new();
    let pools = Pools::new(Settings {
        process_limit: 1,
        ..fake.settings()
    })
    .unwrap();
    let of = |database: &str| MapGroup {
        owner: Owner {
            database: database.into(),
            ..Owner::default()
        },
        ..group("fake", &["ok"])
    };
    let count = |event: &str| {
        fake.events()
            .iter()
            .filter(|e| e.starts_with(event))
            .count()
    };
    for _ in 0..2 {
        map(&pools, &of("one"), &["{}"]).unwrap();
    }
    assert_eq!((count("reset"), count("add_fun")), (1, 1));
    map(&pools, &of("two"), &["{}"]).unwrap();
    assert_eq!((count("reset"), count("add_fun")), (2, 2));
    for (database, resets) in [("one", 3), ("one", 3), ("two", 4)] {
        let mut reducer = pools.reducer(database, "fake", "give back", None).unwrap();
        reducer.rereduce(&[]).unwrap();
        assert_eq!(count("reset"), resets, "a reduction of {database}");
    }
    let design = ddoc("_design/a", "1-a", r#"{"n":1}"#);
    for (database, resets) in [("one", 5), ("one", 5), ("two", 6)] {
        let mut designs = pools.designs(database, "fake").unwrap();
        designs
            .call(&design, &["shows", "s"], b"[null,{}]")
            .unwrap();
        assert_eq!(count("reset"), resets, "a show of {database}");
    }
}

#[test]
fn reset_hands_the_configuration_over() {
    for (reduce_limit, text) in [
        (ReduceLimit::On, "true"),
        (ReduceLimit::Off, "false"),
        (ReduceLimit::Log, "\"log\""),
    ] {
        let fake = Fake::new();
        let pools = Pools::new(Settings {
            reduce_limit,
            ..fake.settings()
        })
        .unwrap();
        map(&pools, &group("fake", &["ok"]), &["{}"]).unwrap();
        assert_eq!(
            std::fs::read_to_string(fake.path("resets")).unwrap(),
            format!(
                "[\"reset\",{{\"reduce_limit\":{text},\"reduce_limit_threshold\":5000,\"reduce_limit_ratio\":2.0,\"timeout\":30000}}]\n"
            )
        );
    }
}

#[test]
fn a_process_that_refuses_to_be_reset_is_thrown_away() {
    let fake = Fake::new();
    let pools = Pools::new(Settings {
        process_limit: 1,
        ..fake.settings()
    })
    .unwrap();
    map(&pools, &group("fake", &["ok"]), &["{}"]).unwrap();
    std::fs::write(fake.path("refuse_reset"), "").unwrap();
    assert_eq!(
        map(&pools, &group("fake", &["ok ok"]), &["{}"]),
        Ok(vec![row(0, 0, "\"d0\"", "null")])
    );
    assert_eq!(fake.pids().len(), 2);
    drop(pools);
    fake.assert_nothing_left();
}

#[test]
fn documents_with_long_answers_are_mapped_in_several_calls() {
    let fake = Fake::new();
    let pools = Pools::new(fake.settings()).unwrap();
    let mut mapper = pools.mapper(&group("fake", &["mib"])).unwrap();
    let doc = Doc {
        members: br#""_id":"d","_rev":"1-x""#,
        body: b"{}",
    };
    let docs = [doc; 100];
    let (mut done, mut calls) = (0, 0);
    while done < docs.len() {
        let mut out = Emits::default();
        let some = mapper.map_some(&docs[done..], &mut out).unwrap();
        assert!(
            some > 0 && out.size() < 5 * EMITS_BYTES_MAX,
            "{some} documents"
        );
        assert!(out.rows.iter().map(|row| row.doc as usize).eq(0..some));
        done += some;
        calls += 1;
    }
    assert!(calls > 3, "{calls} calls");
    // Answers to documents that were sent ahead are not awaited, once.
    assert!(fake.pids().len() <= 3, "{} processes", fake.pids().len());
    drop(mapper);
    drop(pools);
    fake.assert_nothing_left();
}

#[test]
fn idle_processes_end_after_the_idle_limit() {
    let fake = Fake::new();
    let pools = Pools::new(Settings {
        idle_limit: Duration::from_millis(20),
        ..fake.settings()
    })
    .unwrap();
    map(&pools, &group("fake", &["ok"]), &["{}"]).unwrap();
    wait_until_gone(fake.pids()[0]);
    assert_eq!(pools.counts("fake"), (0, 0));
    map(&pools, &group("fake", &["ok"]), &["{}"]).unwrap();
    wait_until_gone(fake.pids()[1]);
}

#[test]
fn processes_beyond_the_soft_limit_are_not_kept() {
    let fake = Fake::new();
    let settings = Settings {
        process_limit: 4,
        process_soft_limit: 1,
        ..fake.settings()
    };
    let pools = Pools::new(settings).unwrap();
    let together = Arc::new(Barrier::new(4));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (holds, go_on) = (together.clone(), Arc::new(Barrier::new(1)));
            let mut designs = pools.designs("db", "fake").unwrap();
            scope.spawn(move || {
                designs.list(
                    &ddoc("_design/d", "1-a", "{}"),
                    &["lists", "all"],
                    b"[{},{}]",
                    &mut Held { holds, go_on },
                )
            });
        }
    });
    assert_eq!(fake.pids().len(), 4);
    assert_eq!(pools.counts("fake"), (0, 1));
}

#[test]
fn new_settings_replace_the_processes() {
    let fake = Fake::new();
    let pools = Pools::new(fake.settings()).unwrap();
    let mut mapper = pools.mapper(&group("fake", &["pid"])).unwrap();
    let first = map_with(&mut *mapper, &["{}"]).unwrap();
    assert_eq!(map_with(&mut *mapper, &["{}"]).unwrap(), first);
    pools.configure(fake.settings());
    wait_until_gone(fake.pids()[0]);
    assert_ne!(map_with(&mut *mapper, &["{}"]).unwrap(), first);
    pools.configure(Settings::default());
    assert!(!pools.has("fake"));
    assert_eq!(
        map_with(&mut *mapper, &["{}"]),
        Err(Error::UnknownLanguage("fake".to_owned()))
    );
}

#[test]
fn languages_are_found_in_any_case() {
    let fake = Fake::new();
    let pools = Pools::new(fake.settings()).unwrap();
    assert!(pools.has("Fake") && !pools.has("other"));
    assert_eq!(
        map(&pools, &group("FAKE", &["ok"]), &["{}"]).map(|rows| rows.len()),
        Ok(1)
    );
    assert!(
        matches!(pools.reducer("db", "other", "x", None), Err(Error::UnknownLanguage(language)) if language == "other")
    );
}

#[test]
fn functions_are_checked_without_harm_to_the_next_user() {
    let fake = Fake::new();
    let settings = || Settings {
        process_limit: 1,
        ..fake.settings()
    };
    let pools = Pools::new(settings()).unwrap();
    assert_eq!(pools.check("fake", "ok"), Ok(()));
    assert_eq!(
        pools.check("fake", "bad"),
        Err(Error::Compile("it is bad".to_owned()))
    );
    assert_eq!(fake.pids().len(), 1);
    pools.configure(Settings {
        timeout: Duration::from_secs(2),
        ..settings()
    });
    assert!(matches!(
        pools.check("fake", "hang"),
        Err(Error::Limit {
            limit: "os_process_timeout",
            ..
        })
    ));
    pools.configure(settings());
    assert_eq!(
        map(&pools, &group("fake", &["bad"]), &["{}"]),
        Err(Error::Compile("it is bad".to_owned()))
    );
    assert_eq!(
        map(&pools, &group("fake", &["ok"]), &["{}"]).map(|rows| rows.len()),
        Ok(1)
    );
    drop(pools);
    fake.assert_nothing_left();
}

#[test]
fn reductions_are_asked_for_as_the_protocol_has_it() {
    let fake = Fake::new();
    let pools = Pools::new(fake.settings()).unwrap();
    let mut reducer = pools
        .reducer("db", "fake", "give back", Some("{}"))
        .unwrap();
    let row = |key: &'static str, id: &'static str, value: &'static str| ReduceRow {
        key: key.as_bytes(),
        id: id.as_bytes(),
        value: value.as_bytes(),
    };
    let rows = [row("[1,\"é\"]", "\"a\"", "1.5"), row("null", "\"b\"", "{}")];
    assert_eq!(
        reducer.reduce(&rows).unwrap(),
        r#"[[[[1,"é"],"a"],1.5],[[null,"b"],{}]]"#.as_bytes()
    );
    assert_eq!(reducer.reduce(&[]).unwrap(), b"[]");
    assert_eq!(
        reducer.rereduce(&[b"1", b"{\"a\":2}"]).unwrap(),
        br#"[1,{"a":2}]"#
    );
    assert_eq!(reducer.rereduce(&[]).unwrap(), b"[]");
    let failing = |source| {
        pools
            .reducer("db", "fake", source, None)
            .unwrap()
            .rereduce(&[])
    };
    assert_eq!(
        failing("overflow"),
        Err(Error::ReduceOverflow("it grows".to_owned()))
    );
    assert!(matches!(failing("odd"), Err(Error::Process(_))));
}

#[test]
fn a_server_that_ends_itself_after_an_error_harms_nobody_else() {
    let fake = Fake::new();
    let pools = Pools::new(fake.settings()).unwrap();
    let mut reducer = pools
        .reducer("db", "fake", "exit_after_error", None)
        .unwrap();
    for _ in 0..5 {
        let thrown = Error::Thrown {
            name: "some_error".to_owned(),
            reason: "and good bye".to_owned(),
        };
        assert_eq!(reducer.rereduce(&[]), Err(thrown));
    }
    assert_eq!(fake.pids().len(), 5);
}

#[test]
fn commands_are_lines_of_query_servers() {
    let mut settings = Settings::default();
    settings.set_command("Python", " couchpy --debug ");
    settings.set_command("other", "");
    settings.set_command("nodejs", "builtin");
    let command = |language: &str| settings.commands.get(language).map(String::as_str);
    assert_eq!(command("python"), Some("couchpy --debug"));
    assert_eq!(command("other"), None);
    assert_eq!(
        command("nodejs"),
        query_server::builtin_command("nodejs").as_deref()
    );
    settings.set_command("python3", "builtin  /bin/sh");
    settings.set_command("python", "builtin /no/such/program");
    let commands = &settings.commands;
    let python3 = commands.get("python3").map(String::as_str);
    assert_eq!(python3, Some("@settee/python /bin/sh"));
    assert_eq!(commands["python"], "couchpy --debug", "as before");
    let variables = [
        ("COUCHDB_QUERY_SERVER_PYTHON", "couchpy -x"),
        ("HOME", "/root"),
    ];
    assert_eq!(
        Settings::commands_of_environment(
            variables.map(|(name, value)| (name.to_owned(), value.to_owned()))
        ),
        [("python".to_owned(), "couchpy -x".to_owned())]
    );
}
