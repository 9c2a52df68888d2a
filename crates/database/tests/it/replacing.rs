//! Shards of a database are replaced by others, or are not.

use crate::support;

use database::{DbEventKind, Error, NewShards, Property};
use support::{all_docs, doc, open, rows_of, runtime, with_shards, write};

const DESIGN: &str = r#"{"_id":"_design/d","language":"query",
    "views":{"v":{"map":{"fields":{"n":"asc"}},"reduce":"_count"}}}"#;

#[test]
fn after_a_refusal_all_is_as_before_and_who_held_the_database_tries_again() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let held = databases.create("a", with_shards(3)).await.unwrap();
        write(&held, vec![doc(DESIGN), doc(r#"{"_id":"x","n":1}"#)]).await;
        let index = held.view_index(&held.design("_design/d").unwrap()).unwrap();
        held.update_view(&index, &database::Requester::Background)
            .await
            .unwrap();
        let before = rows_of(&mut held.rows(all_docs()).unwrap(), 1 << 20);
        let new = |name: Option<&str>| NewShards {
            name: name.map(Into::into),
            uuid: held.uuid(),
            shards: vec![(1, 77)],
        };
        let before_events = databases.events_since(0).1;
        let refused = databases.replace_shards(vec![new(Some("a"))], |replacement| {
            assert_eq!(replacement.replaced.len(), 1);
            assert_eq!(replacement.puts.len(), 1);
            assert!(replacement.unwanted.is_empty());
            Err(storage::Error::Corrupt("copy"))
        });
        assert!(refused.await.is_err());
        assert_eq!(databases.events_since(0).1, before_events);
        assert!(matches!(held.rows(all_docs()), Err(Error::Unavailable(_))));
        assert!(matches!(
            held.set_revs_limit(5).await,
            Err(Error::Unavailable(_))
        ));
        let db = databases.get("a").unwrap();
        assert_eq!(rows_of(&mut db.rows(all_docs()).unwrap(), 1 << 20), before);
        write(&db, vec![doc(r#"{"_id":"y","n":2}"#)]).await;
        let index = db.view_index(&db.design("_design/d").unwrap()).unwrap();
        db.update_view(&index, &database::Requester::Background)
            .await
            .unwrap();
        let limit = Property::RevsLimit(9);
        let changed = databases.change_sequenced("a", held.uuid(), limit).await;
        changed.unwrap();
        assert_eq!(db.revs_limit(), 9);
        let db_events = databases.events_since(0).1;
        // Of a database that is gone nothing is replaced.
        let gone = databases.replace_shards(vec![new(Some("b")), new(None)], |replacement| {
            assert_eq!(replacement.unwanted, [77, 77]);
            assert!(replacement.replaced.is_empty() && replacement.puts.is_empty());
            Ok(())
        });
        gone.await.unwrap();
        assert_eq!(databases.events_since(0).1, db_events);
        // Watchers of databases are told that this one may have changed.
        let replaced = databases.replace_shards(vec![new(Some("a"))], |_| Ok(()));
        replaced.await.unwrap();
        let (events, _) = databases.events_since(db_events);
        let events: Vec<_> = events.iter().map(|e| (&*e.db, e.kind)).collect();
        assert_eq!(events, [("a", DbEventKind::Updated)]);
        databases.delete("a").await.unwrap();
    });
}
