//! Compares the index with a linear scan of a list of documents: both find, sort and count alike.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};
use std::rc::Rc;

use proptest::prelude::*;
use search::query::WildcardToken;
use search::{
    Analyze, Answer, Fields, GroupAnswer, GroupHits, GroupRequest, Hit, Index, Query, Range,
    Request, Similarity, SortBy, SortKey, SortValue, search_groups, types_of,
};
use serde_json::{Value, json};

/// Splits at spaces.
struct Words;

impl Analyze for Words {
    fn analyze(&self, _: &str, text: &str, token: &mut dyn FnMut(&str, u32)) {
        for (position, word) in text.split(' ').filter(|w| !w.is_empty()).enumerate() {
            token(word, position as u32);
        }
    }
}

/// A document: words of `t`, strings of `s`, numbers of `n`.
#[derive(Clone, Debug, Default)]
struct Doc {
    words: Vec<String>,
    strings: Vec<String>,
    numbers: Vec<i32>,
}

impl Doc {
    fn fields(&self) -> Fields {
        let mut fields = Fields::new();
        let mut add = |kind, name, value| fields.add(0, kind, name, value, &json!(true)).unwrap();
        add("text", "t", json!(self.words.join(" ")));
        self.strings
            .iter()
            .for_each(|s| add("string", "s", json!(s)));
        self.numbers
            .iter()
            .for_each(|n| add("double", "n", json!(n)));
        fields
    }

    fn terms(&self, field: &str, id: &str) -> BTreeSet<String> {
        match field {
            "t" => self.words.iter().cloned().collect(),
            "s" => self.strings.iter().cloned().collect(),
            "_id" => BTreeSet::from([id.to_owned()]),
            _ => BTreeSet::new(),
        }
    }

    fn matches(&self, query: &Query, id: &str) -> bool {
        match query {
            Query::All => true,
            Query::Term { field, term } => self.terms(field, id).contains(term),
            Query::Prefix { field, prefix } => {
                self.terms(field, id).iter().any(|t| t.starts_with(prefix))
            }
            Query::Terms { field, low, high } => self
                .terms(field, id)
                .iter()
                .any(|t| (low.clone(), high.clone()).contains(t)),
            Query::Numbers { low, high, .. } => self
                .numbers
                .iter()
                .any(|n| (*low, *high).contains(&f64::from(*n))),
            Query::Wildcard { field, pattern } => {
                let Some(WildcardToken::Char(c)) = pattern.first() else {
                    unreachable!()
                };
                // The test's patterns are a letter and one character.
                self.terms(field, id)
                    .iter()
                    .any(|t| t.starts_with(*c) && t.chars().count() == 2)
            }
            Query::Phrase { terms, .. } => {
                let places = 0..self.words.len();
                places.into_iter().any(|at| {
                    terms.iter().all(|(offset, any)| {
                        let word = self.words.get(at + *offset as usize);
                        word.is_some_and(|w| any.contains(w))
                    })
                })
            }
            Query::Boolean {
                must,
                should,
                must_not,
                should_min,
            } => {
                let found = should.iter().filter(|q| self.matches(q, id)).count();
                let least = if must.is_empty() {
                    (*should_min).max(1)
                } else {
                    *should_min
                };
                must.iter().all(|q| self.matches(q, id))
                    && found >= least
                    && !must_not.iter().any(|q| self.matches(q, id))
            }
            Query::Constant(inner, _) | Query::Boost(inner, _) => self.matches(inner, id),
            other => unreachable!("{other:?}"),
        }
    }

    fn value(&self, key: &SortKey, id: &str, has_numbers: bool) -> SortValue {
        match &key.by {
            SortBy::Id => SortValue::Text(id.to_owned()),
            // A field that no document ever had has no type, and no values.
            SortBy::Field(f) if f == "n" && has_numbers => {
                SortValue::Number(self.numbers.iter().min().map_or(0.0, |n| f64::from(*n)))
            }
            SortBy::Field(f) if f == "s" => self
                .strings
                .iter()
                .min()
                .map_or(SortValue::Null, |s| SortValue::Text(s.clone())),
            _ => SortValue::Null,
        }
    }
}

fn compare(a: &[SortValue], b: &[SortValue], keys: &[SortKey]) -> std::cmp::Ordering {
    for (n, (a, b)) in a.iter().zip(b).enumerate() {
        let o = match (a, b) {
            (SortValue::Number(a), SortValue::Number(b)) => a.total_cmp(b),
            // The best first.
            (SortValue::Score(a), SortValue::Score(b)) => b.total_cmp(a),
            (SortValue::Text(a), SortValue::Text(b)) => a.cmp(b),
            (SortValue::Null, SortValue::Null) => std::cmp::Ordering::Equal,
            (SortValue::Null, _) => std::cmp::Ordering::Less,
            (_, SortValue::Null) => std::cmp::Ordering::Greater,
            other => unreachable!("{other:?}"),
        };
        let o = if keys.get(n).is_some_and(|k| k.reversed) {
            o.reverse()
        } else {
            o
        };
        if o.is_ne() {
            return o;
        }
    }
    std::cmp::Ordering::Equal
}

type Docs = BTreeMap<String, Doc>;

/// A database of two shards.
struct Shards {
    _dir: tempfile::TempDir,
    shards: Vec<Index>,
}

impl Shards {
    fn new() -> Shards {
        let dir = tempfile::tempdir().unwrap();
        let open = |n| Index::open(&dir.path().join(format!("{n}"))).unwrap();
        Shards {
            shards: vec![open(0), open(1)],
            _dir: dir,
        }
    }

    fn shard(&self, id: &str) -> usize {
        id.bytes().map(usize::from).sum::<usize>() % self.shards.len()
    }

    fn apply(&self, changes: &[(String, Option<Doc>)], seq: u64) {
        for (number, index) in self.shards.iter().enumerate() {
            let mut update = index.update(1, 0).unwrap();
            for (id, doc) in changes.iter().filter(|(id, _)| self.shard(id) == number) {
                match doc {
                    Some(doc) => update.put(id, None, doc.fields(), &Words).unwrap(),
                    None => update.remove(id),
                }
            }
            update.commit(seq, 0).unwrap();
            drop(update);
            if seq.is_multiple_of(3) {
                index.tidy(&|| false).unwrap();
            }
        }
    }

    fn search(&self, request: &Request) -> Answer {
        let readers: Vec<_> = self.shards.iter().map(Index::reader).collect();
        let types = types_of(&readers);
        search::search(&readers, request, &types, &Rc::default()).unwrap()
    }

    fn search_groups(&self, request: &Request, groups: &GroupRequest) -> GroupAnswer {
        let readers: Vec<_> = self.shards.iter().map(Index::reader).collect();
        let types = types_of(&readers);
        search_groups(&readers, request, groups, &types, &Rc::default()).unwrap()
    }
}

fn request(query: Query, sort: Vec<SortKey>, limit: usize) -> Request {
    let range = |label: &str, low, high| Range {
        label: label.to_owned(),
        low,
        high,
    };
    Request {
        query,
        filters: vec![],
        similarity: Similarity::Bm25,
        sort,
        limit,
        after: None,
        statistics: search::Statistics::default(),
        counts: vec!["s".into(), "nosuch".into()],
        ranges: vec![(
            "n".into(),
            vec![
                range("low", Bound::Unbounded, Bound::Excluded(0.0)),
                range("high", Bound::Included(0.0), Bound::Unbounded),
            ],
        )],
    }
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[ab]",
        2 => "[ab][abü]",
        1 => "[a-d]{1,3}",
    ]
}

fn doc() -> impl Strategy<Value = Doc> {
    (
        prop::collection::vec(word(), 0..8),
        prop::collection::vec(word(), 0..3),
        prop::collection::vec(-3..4i32, 0..3),
    )
        .prop_map(|(words, strings, numbers)| Doc {
            words,
            strings,
            numbers,
        })
}

fn id() -> impl Strategy<Value = String> {
    "[a-e]{1,2}"
}

fn bound<T: std::fmt::Debug + Clone>(
    of: impl Strategy<Value = T>,
) -> impl Strategy<Value = Bound<T>> {
    (of, 0..3).prop_map(|(value, kind)| match kind {
        0 => Bound::Included(value),
        1 => Bound::Excluded(value),
        _ => Bound::Unbounded,
    })
}

fn field() -> impl Strategy<Value = String> {
    prop_oneof![Just("t"), Just("s"), Just("_id"), Just("nosuch")].prop_map(str::to_owned)
}

fn query() -> impl Strategy<Value = Query> {
    let leaf = prop_oneof![
        Just(Query::All),
        (field(), word()).prop_map(|(field, term)| Query::Term { field, term }),
        (field(), word()).prop_map(|(field, prefix)| Query::Prefix { field, prefix }),
        (field(), prop_oneof![Just('a'), Just('b')]).prop_map(|(field, c)| Query::Wildcard {
            field,
            pattern: vec![WildcardToken::Char(c), WildcardToken::One],
        }),
        (field(), bound(word()), bound(word())).prop_map(|(field, low, high)| Query::Terms {
            field,
            low,
            high
        }),
        (bound(-3..4i32), bound(-3..4i32)).prop_map(|(low, high)| Query::Numbers {
            field: "n".into(),
            low: low.map(f64::from),
            high: high.map(f64::from),
        }),
        prop::collection::vec(word(), 1..4).prop_map(|words| Query::Phrase {
            field: "t".into(),
            terms: (0..).zip(words.into_iter().map(|w| vec![w])).collect(),
            slop: 0,
        }),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let parts = || prop::collection::vec(inner.clone(), 0..4);
        (parts(), parts(), parts(), 0..3usize).prop_map(|(must, should, must_not, should_min)| {
            Query::Boolean {
                should_min: should_min.min(should.len()),
                must,
                should,
                must_not,
            }
        })
    })
}

fn sort() -> impl Strategy<Value = Vec<SortKey>> {
    let key = prop_oneof![
        Just(SortBy::Field("n".into())),
        Just(SortBy::Field("s".into())),
        Just(SortBy::Field("nosuch".into())),
        Just(SortBy::Id),
    ];
    let key = (key, any::<bool>()).prop_map(|(by, reversed)| SortKey { by, reversed });
    prop::collection::vec(key, 1..3).prop_map(|mut keys| {
        // The id is unique: sort keys after it have no effect.
        if let Some(at) = keys.iter().position(|k| k.by == SortBy::Id) {
            keys.truncate(at + 1);
        }
        keys
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn what_is_found_is_what_is_there(
        changes in prop::collection::vec(prop::collection::vec((id(), prop::option::weighted(0.8, doc())), 0..10), 1..5),
        queries in prop::collection::vec((query(), sort()), 8),
        limit in 1..6usize,
    ) {
        let shards = Shards::new();
        let mut docs = Docs::new();
        let mut has_numbers = false;
        for (n, batch) in changes.iter().enumerate() {
            // An update has each document once.
            let batch: BTreeMap<_, _> = batch.iter().cloned().collect();
            for (id, doc) in &batch {
                has_numbers |= doc.as_ref().is_some_and(|doc| !doc.numbers.is_empty());
                match doc {
                    Some(doc) => docs.insert(id.clone(), doc.clone()),
                    None => docs.remove(id),
                };
            }
            shards.apply(&batch.into_iter().collect::<Vec<_>>(), n as u64 + 1);
        }
        for (query, sort) in &queries {
            check(&shards, (&docs, has_numbers), query, sort, limit)?;
            scored(&shards, &docs, query, limit)?;
            match_hits(&shards, &docs, query, (sort, &queries[0].0))?;
            let score = vec![by_score()];
            for field in ["s", "_id", "nosuch"] {
                grouped(&shards, &docs, (query, field), (sort, &score), limit)?;
            }
            grouped(&shards, &docs, (query, "s"), (&score, sort), limit)?;
        }
    }
}

fn check(
    shards: &Shards,
    (docs, has_numbers): (&Docs, bool),
    query: &Query,
    sort: &[SortKey],
    limit: usize,
) -> Result<(), TestCaseError> {
    let mut expected: Vec<(Vec<SortValue>, &String)> = docs
        .iter()
        .filter(|(id, doc)| doc.matches(query, id))
        .map(|(id, doc)| {
            let mut order: Vec<_> = sort
                .iter()
                .map(|key| doc.value(key, id, has_numbers))
                .collect();
            if sort.iter().all(|key| key.by != SortBy::Id) {
                order.push(SortValue::Text(id.clone()));
            }
            (order, id)
        })
        .collect();
    expected.sort_by(|a, b| compare(&a.0, &b.0, sort));
    // All pages together contain each hit once.
    let mut request = request(query.clone(), sort.to_vec(), limit);
    let mut found = vec![];
    loop {
        let answer = shards.search(&request);
        prop_assert_eq!(answer.total as usize, expected.len());
        check_counts(&answer, docs, query)?;
        let Some(last) = answer.hits.last() else {
            break;
        };
        request.after = Some(last.order.clone());
        found.extend(answer.hits);
        prop_assert!(found.len() <= expected.len());
    }
    let found: Vec<_> = found.into_iter().map(|hit| (hit.order, hit.id)).collect();
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(order, id)| (order, id.clone()))
        .collect();
    prop_assert_eq!(found, expected);
    Ok(())
}

fn check_counts(answer: &Answer, docs: &Docs, query: &Query) -> Result<(), TestCaseError> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut ranges = vec![0; 2];
    for (_, doc) in docs.iter().filter(|(id, doc)| doc.matches(query, id)) {
        for s in doc.strings.iter().collect::<BTreeSet<_>>() {
            *counts.entry(s.clone()).or_default() += 1;
        }
        ranges[0] += u64::from(doc.numbers.iter().any(|n| *n < 0));
        ranges[1] += u64::from(doc.numbers.iter().any(|n| *n >= 0));
    }
    let found: BTreeMap<_, _> = answer.counts[0]
        .iter()
        .map(|(s, n)| (s.clone(), *n))
        .collect();
    prop_assert_eq!(found, counts);
    prop_assert!(answer.counts[1].is_empty());
    prop_assert_eq!(&answer.ranges[0], &ranges);
    Ok(())
}

/// Hits that match another query as well are found in any order of hits.
fn match_hits(
    shards: &Shards,
    docs: &Docs,
    query: &Query,
    (sort, of): (&[SortKey], &Query),
) -> Result<(), TestCaseError> {
    let hits = shards
        .search(&request(of.clone(), sort.to_vec(), docs.len() + 1))
        .hits;
    let readers: Vec<_> = shards.shards.iter().map(Index::reader).collect();
    for similarity in [Similarity::Bm25, Similarity::TfIdf] {
        let found =
            search::match_hits(&readers, (query, similarity), &hits, &Rc::default()).unwrap();
        let expected = hits
            .iter()
            .map(|hit| docs[&hit.id].matches(query, &hit.id))
            .collect::<Vec<_>>();
        prop_assert_eq!(found, expected);
    }
    Ok(())
}

/// The groups of a search are those of all its hits, and have the hits that a search for each of
/// them would find.
fn grouped(
    shards: &Shards,
    docs: &Docs,
    (query, field): (&Query, &str),
    (sort, group_sort): (&[SortKey], &[SortKey]),
    limit: usize,
) -> Result<(), TestCaseError> {
    let all = |sort: &[SortKey]| {
        let request = request(query.clone(), sort.to_vec(), docs.len() + 1);
        shards.search(&request).hits
    };
    let name = |hit: &Hit| docs[&hit.id].terms(field, &hit.id).pop_last();
    let mut hits: BTreeMap<Option<String>, Vec<Hit>> = BTreeMap::new();
    for hit in all(sort) {
        hits.entry(name(&hit)).or_default().push(hit);
    }
    // A group has the place of its first hit; equal ones are in the order of their names.
    let mut best: BTreeMap<Option<String>, Vec<SortValue>> = BTreeMap::new();
    for hit in all(group_sort) {
        let order = &hit.order[..group_sort.len()];
        best.entry(name(&hit)).or_insert_with(|| order.to_vec());
    }
    let mut groups: Vec<_> = best.into_iter().collect();
    groups.sort_by(|a, b| compare(&a.1, &b.1, group_sort));
    let expected = groups.into_iter().take(limit).map(|(by, _)| {
        let mut hits = hits.remove(&by).unwrap();
        let total = hits.len() as u64;
        hits.truncate(limit);
        GroupHits { by, total, hits }
    });
    let expected: Vec<GroupHits> = expected.collect();
    let mut request = request(query.clone(), sort.to_vec(), limit);
    // Groups are those of the beginning, wherever another search would continue.
    request.after = expected.last().map(|group| group.hits[0].order.clone());
    let groups = GroupRequest {
        field: field.to_owned(),
        sort: group_sort.to_vec(),
        limit,
    };
    let found = shards.search_groups(&request, &groups);
    let total = docs.iter().filter(|(id, doc)| doc.matches(query, id));
    prop_assert_eq!(found.total as usize, total.count());
    prop_assert_eq!(found.groups, expected);
    Ok(())
}

fn by_score() -> SortKey {
    SortKey {
        by: SortBy::Score,
        reversed: false,
    }
}

/// Each explained sum is the sum of its details.
fn sums_up(explained: &search::Explanation) -> Result<(), TestCaseError> {
    if explained.description == "sum of" {
        let sum: f32 = explained.details.iter().map(|part| part.value).sum();
        prop_assert!((sum - explained.value).abs() < 1e-5, "{:?}", explained);
    }
    explained.details.iter().try_for_each(sums_up)
}

/// Pages by score contain each hit once, and scores do not increase.
fn scored(shards: &Shards, docs: &Docs, query: &Query, limit: usize) -> Result<(), TestCaseError> {
    let mut request = request(query.clone(), vec![by_score()], limit);
    let mut found = BTreeSet::new();
    let mut last_score = f32::INFINITY;
    loop {
        let answer = shards.search(&request);
        let Some(last) = answer.hits.last() else {
            break;
        };
        request.statistics = answer.statistics.clone();
        let readers: Vec<_> = shards.shards.iter().map(Index::reader).collect();
        let explained = search::explain(&readers, &request, &answer.hits, &Rc::default()).unwrap();
        for (hit, explained) in answer.hits.iter().zip(explained) {
            sums_up(&explained)?;
            let SortValue::Score(score) = hit.order[0] else {
                panic!("no score")
            };
            prop_assert!(
                score <= last_score && score >= 0.0,
                "{} {}",
                score,
                last_score
            );
            prop_assert!(
                (score - explained.value).abs() < 1e-5,
                "{} {:?}",
                score,
                explained
            );
            last_score = score;
            prop_assert!(found.insert(hit.id.clone()), "{} twice", hit.id);
            let stored = shards.shards[hit.shard]
                .reader()
                .stored(hit.segment, hit.doc)
                .unwrap();
            let stored: Value = serde_json::from_str(&stored).unwrap();
            let text = docs[&hit.id].words.join(" ");
            prop_assert_eq!(&stored["t"], &Value::String(text));
        }
        request.after = Some(last.order.clone());
    }
    let expected: BTreeSet<_> = docs
        .iter()
        .filter(|(id, d)| d.matches(query, id))
        .map(|(id, _)| id.clone())
        .collect();
    prop_assert_eq!(found, expected);
    Ok(())
}
