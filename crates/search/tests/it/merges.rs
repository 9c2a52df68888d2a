//! Merges, and concurrent updates.

use crate::support;

use search::Index;
use support::{Words, found, long_text, opened, ten_segments, term, text, write};

#[test]
fn small_commits_do_not_pile_up_segments() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    for n in 1..=40 {
        write(&index, &[(&format!("d{n}"), "x")], n);
        if index.is_untidy() {
            index.tidy(&|| false).unwrap();
        }
    }
    assert!(
        index.reader().segments() <= 10,
        "{}",
        index.reader().segments()
    );
    assert_eq!(index.commit().seq, 40);
    assert_eq!(found(&index, term("x")).len(), 40);
}

#[test]
fn a_merge_that_is_stopped_is_not_waited_for_and_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let index = ten_segments(dir.path());
    assert!(index.is_untidy());
    let looks = std::cell::Cell::new(0);
    let stopped = || {
        looks.set(looks.get() + 1);
        looks.get() > 1
    };
    let merges = index.tidy(&stopped).unwrap();
    assert_eq!(merges, 0);
    // Once before the merge, once within it, and once after it.
    assert_eq!(looks.get(), 3);
    assert_eq!(index.reader().segments(), 10);
    drop(index);
    let index = opened(dir.path());
    assert_eq!(found(&index, term("w7")).len(), 10);
    let merges = index.tidy(&|| false).unwrap();
    assert_eq!((merges, index.reader().segments()), (1, 1));
    assert_eq!(found(&index, term("w7")).len(), 10);
}

#[test]
fn updates_go_on_beside_a_merge() {
    let dir = tempfile::tempdir().unwrap();
    let index = ten_segments(dir.path());
    let looks = std::cell::Cell::new(0);
    // Runs whenever the merge is polled.
    let beside = || {
        looks.set(looks.get() + 1);
        if looks.get() == 2 {
            assert!(!index.is_untidy(), "nothing is left for another one");
            let mut update = index.update(1, 0).unwrap();
            update.remove("d1");
            update.put("d2", None, text("new"), &Words).unwrap();
            update.commit(11, 0).unwrap();
            drop(update);
            write(&index, &[("d11", &long_text())], 12);
            assert_eq!(index.reader().commit.seq, 12);
            assert_eq!(found(&index, term("new")), ["d2"]);
            assert_eq!(found(&index, term("w7")).len(), 9);
        }
        false
    };
    // The first merge is abandoned, as nothing is left of two of its segments.
    assert_eq!(index.tidy(&beside).unwrap(), 1);
    assert_eq!(index.commit().seq, 12);
    let check = |index: &Index| {
        assert_eq!(found(index, term("new")), ["d2"]);
        assert_eq!(found(index, term("w7")).len(), 9);
    };
    check(&index);
    write(&index, &[("d3", "new")], 13);
    drop(index);
    let index = opened(dir.path());
    assert_eq!(found(&index, term("new")), ["d2", "d3"]);
    assert_eq!(found(&index, term("w7")).len(), 8);
}

#[test]
fn an_index_is_cleared_beside_a_merge_of_what_went() {
    let dir = tempfile::tempdir().unwrap();
    let index = ten_segments(dir.path());
    let ids: Vec<String> = (1..=10).map(|n| format!("d{n}")).collect();
    let looks = std::cell::Cell::new(0);
    let beside = || {
        looks.set(looks.get() + 1);
        if looks.get() == 2 {
            let mut update = index.update(1, 0).unwrap();
            for id in &ids {
                update.remove(id);
            }
            update.commit(11, 0).unwrap();
            drop(update);
            let mut update = index.update(1, 0).unwrap();
            update.clear().unwrap();
            for id in ids.iter().rev() {
                update.put(id, None, text("again"), &Words).unwrap();
            }
            update.commit(12, 0).unwrap();
        }
        false
    };
    index.tidy(&beside).unwrap();
    assert_eq!(found(&index, term("again")).len(), 10);
    assert!(found(&index, term("w7")).is_empty());
    drop(index);
    assert_eq!(found(&opened(dir.path()), term("again")).len(), 10);
}

#[test]
fn an_update_that_fails_beside_a_merge_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let index = ten_segments(dir.path());
    for abandons in [true, false] {
        std::thread::scope(|scope| {
            let (looks, failing) = (std::cell::Cell::new(0), std::cell::Cell::new(None));
            let fail = || {
                let update = index.update(1, 0).unwrap();
                update.put("d1", None, text("lost"), &Words).unwrap();
                match abandons {
                    true => update.abandon().unwrap(),
                    false => drop(update),
                }
            };
            let beside = || {
                looks.set(looks.get() + 1);
                if looks.get() == 2 {
                    failing.set(Some(scope.spawn(fail)));
                }
                false
            };
            assert_eq!(index.tidy(&beside).unwrap(), 1);
            failing.take().unwrap().join().unwrap();
        });
        write(&index, &[("other", "x")], 11);
        assert_eq!(found(&index, term("w7")).len(), 10);
        assert!(found(&index, term("lost")).is_empty());
        // Something to merge again.
        for seq in 12..=21 {
            write(&index, &[(&format!("e{seq}"), "y")], seq);
        }
    }
}
