//! Text indexes by Nouveau's interface: `_nouveau/{index}`, `_nouveau_info/{index}` and `_nouveau_analyze`.

use std::time::Instant;

use analysis::query::as_you_type;
use analysis::{Analyzer, Flavour};
use database::{
    TextAnswer, TextCost, TextCounts, TextGrouping, TextHighlight, TextHighlightOptions, TextHit,
    TextQuery, TextRange, TextSortBy, TextSortKey, TextSortValue, text_bounds, text_flag,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::database_routes::texts::{
    FIELDS_MAX, GROUP_LIMIT, GROUP_LIMIT_MAX, HIGHLIGHT_SIZE_MAX, HIGHLIGHTS_MAX, HitDocuments,
    RANGES_MAX, SORT_KEYS_MAX, ShownCounts, ShownHits, blocking, current_index, drilldowns,
    highlight_tag, in_turn, index_of, ranges_value, response_text, tokens, within, within_wait,
};
use crate::database_routes::views::require_visible;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use node::{Access, Query, parse_json};

type Answer = Result<Reply, ApiError>;

/// Default number of hits.
const LIMIT: usize = 25;
/// Default number of counts of a field, and the maximum.
const TOP_N: usize = 10;
const TOP_N_MAX: i64 = 1000;

/// Parameters of the route besides the index.
struct Asked {
    query: TextQuery,
    update: bool,
    include_docs: bool,
}

/// `_nouveau/{index}`
pub async fn search(req: &mut Request, access: &Access, id: &str, path: &[String]) -> Answer {
    let [name] = path else {
        return Err(ApiError::method_not_allowed("GET, POST"));
    };
    let body = match req.method.as_str() {
        "POST" => {
            req.require_json()?;
            // Its room stays taken while the search waits.
            Some(req.json_object().await?)
        }
        _ => None,
    };
    let design = access.db.design_async(id).await?;
    require_visible(access, id)?;
    let asked = match &body {
        Some(body) => asked_in(body)?,
        None => asked_by(&req.query)?,
    };
    // The path of a partition names it, whatever the method.
    let partition = req.query.get("partition").map(str::to_owned);
    let query = TextQuery {
        partition,
        ..asked.query
    };
    drop((body, design));
    let began = Instant::now();
    let index = current_index(access, id, (Flavour::Nouveau, name), asked.update).await?;
    if !asked.update && index.is_unbuilt() {
        return Err(ApiError::new(404, "not_found", "Index does not exist"));
    }
    let latency_us = match asked.update {
        true => began.elapsed().as_micros() as u64,
        false => 0,
    };
    let cost = TextCost {
        reads_docs: asked.include_docs,
        ..cost_of(&query)
    };
    let turn = within_wait(access.db.text_turn(index.docs(), &cost)).await?;
    let db = access.db.clone();
    in_turn(turn, move || {
        let (answer, memory) = db.search_text(&index, &query)?;
        let documents = HitDocuments::new(&db, &memory);
        let hits = ShownHits {
            hits: &answer.hits,
            order: &|hit: &TextHit| hit.order.iter().map(order_value).collect(),
            documents: asked.include_docs.then_some(&documents),
        };
        response_text(&shown(&answer, hits, latency_us), &documents)
    })
    .await
}

/// The properties of a search that determine its cost.
fn cost_of(query: &TextQuery) -> TextCost<'_> {
    let ranges = query
        .ranges
        .iter()
        .flatten()
        .map(|(_, ranges)| ranges.len());
    let group_sort = query.group.as_ref().map_or(0, |group| group.sort.len());
    TextCost {
        q: &query.q,
        of_hit: query.sort.len()
            + group_sort
            + query.counts.as_ref().map_or(0, Vec::len)
            + ranges.sum::<usize>(),
        groups: query.group.as_ref().map_or(0, |group| group.limit),
        values: query.drilldown.iter().map(|(_, values)| values.len()).sum(),
        reads_stored_text: query.highlight.is_some() || query.explain,
        hits: query.limit,
        reads_docs: false,
    }
}

/// `_nouveau_info/{index}`
pub async fn info(access: &Access, id: &str, path: &[String]) -> Answer {
    let [name] = path else {
        return Err(ApiError::bad_request("path not recognized"));
    };
    let design = access.db.design_async(id).await?;
    let index = index_of(access, design, Flavour::Nouveau, name).await?;
    let db = access.db.clone();
    let info = blocking(move || Ok(db.text_info(&index)?)).await?;
    let mut answer = json!({
        "name": format!("{id}/{name}"),
        "search_index": {
            "signature": info.signature,
            "update_seq": info.update_seq,
            "purge_seq": info.purge_seq,
            "num_docs": info.docs,
            "disk_size": info.file_bytes,
        },
    });
    if info.left_out > 0 {
        answer["search_index"]["num_left_out_docs"] = info.left_out.into();
    }
    Ok(Reply::json(200, &answer))
}

/// `_nouveau_analyze`
pub async fn analyze(req: &mut Request) -> Answer {
    req.require_json()?;
    let body = req.json_object().await?;
    let text = |name: &str| {
        body.get(name)
            .and_then(Value::as_str)
            .filter(|t| !t.is_empty())
    };
    let (Some(text), Some(name)) = (text("text"), text("analyzer")) else {
        return Err(ApiError::bad_request(
            "'text' and 'analyzer' fields must be non-empty strings",
        ));
    };
    let analyzer = Analyzer::named(Flavour::Nouveau, name);
    let analyzer = analyzer.map_err(|e| ApiError::bad_request(e.to_string()))?;
    tokens(req, analyzer, text.to_owned()).await
}

// ---- the query

fn parse_error(reason: impl Into<String>) -> ApiError {
    ApiError::query_parse(reason.into())
}

fn invalid(name: &str, value: impl std::fmt::Display) -> ApiError {
    parse_error(format!("Invalid value for {name}: {value}"))
}

/// Parses the parameters of a query string. Groups, highlights and drilldowns are only possible in
/// bodies: here Nouveau ignores unknown parameters.
fn asked_by(params: &Query) -> Result<Asked, ApiError> {
    let integer = |name: &str| -> Result<Option<i64>, ApiError> {
        let Some(text) = params.get(name) else {
            return Ok(None);
        };
        let parsed = text.parse();
        parsed
            .map(Some)
            .map_err(|_| parse_error(format!("{name} parameter must be an integer")))
    };
    let flag = |name: &str| match params.get(name) {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(other) => Err(invalid(name, json!(other))),
    };
    let parsed = |name: &str| -> Result<Option<Value>, ApiError> {
        Ok(params.get(name).map(parse_json).transpose()?)
    };
    let limit = integer("limit")?.unwrap_or(LIMIT as i64);
    if limit < 1 {
        return Err(ApiError::bad_request("limit must be greater than 0"));
    }
    let limit = limit_of(limit)?;
    let top_n = integer("top_n")?.unwrap_or(TOP_N as i64);
    if top_n < 1 {
        return Err(ApiError::bad_request(
            "topN must be greater than or equal to 1",
        ));
    }
    let q = params.get("q").map(str::to_owned).ok_or_else(no_query)?;
    let query = TextQuery {
        locale: params.get("locale").map(str::to_owned),
        sort: parsed("sort")?.map_or(Ok(vec![]), |sort| sort_of(&sort))?,
        bookmark: params.get("bookmark").map(str::to_owned),
        counts: parsed("counts")?
            .map(|counts| counts_of(&counts))
            .transpose()?,
        ranges: parsed("ranges")?
            .map(|ranges| ranges_of(&ranges))
            .transpose()?,
        top_n: top_n_of(top_n)?,
        ..TextQuery::new(q, limit)
    };
    Ok(Asked {
        query,
        update: flag("update")?.unwrap_or(true),
        include_docs: flag("include_docs")?.unwrap_or(false),
    })
}

/// By the members of a body.
fn asked_in(body: &Map<String, Value>) -> Result<Asked, ApiError> {
    let positive = |name: &str, default: usize| match body.get(name) {
        None => Ok(default as i64),
        Some(value) => match value.as_i64() {
            Some(n) if n >= 1 => Ok(n),
            Some(_) => Err(parse_error(format!(
                "{name} parameter must be greater than zero"
            ))),
            None => Err(invalid(name, value)),
        },
    };
    let flag = |name: &str, default| match body.get(name) {
        None => Ok(default),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(value) => Err(invalid(name, value)),
    };
    let text = |name: &str| match body.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(value) => Err(invalid(name, value)),
    };
    let q = body.get("q").ok_or_else(no_query).and_then(query_of)?;
    let q = match flag("as_you_type", false)? {
        true => as_you_type(&q),
        false => q,
    };
    let limit = limit_of(positive("limit", LIMIT)?)?;
    let member = |name: &str| body.get(name).cloned();
    let query = TextQuery {
        locale: text("locale")?,
        sort: body.get("sort").map_or(Ok(vec![]), sort_of)?,
        bookmark: match body.get("bookmark") {
            Some(Value::Null) => None,
            _ => text("bookmark")?,
        },
        counts: body.get("counts").map(counts_of).transpose()?,
        ranges: body.get("ranges").map(ranges_of).transpose()?,
        top_n: top_n_of(positive("top_n", TOP_N)?)?,
        drilldown: body.get("drilldown").map_or(Ok(vec![]), drilldowns)?,
        highlight: highlight_of(&member)?,
        group: group_of(&member)?,
        explain: flag("explain", false)?,
        ..TextQuery::new(q, limit)
    };
    Ok(Asked {
        query,
        update: flag("update", true)?,
        include_docs: flag("include_docs", false)?,
    })
}

/// Returns a request's value of a name.
type Member<'a> = &'a dyn Fn(&str) -> Option<Value>;

fn text_of(name: &str, member: Member<'_>) -> Result<Option<String>, ApiError> {
    match member(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(value) => Err(invalid(name, value)),
    }
}

/// A number from 1 to the most that there may be.
fn number_of(name: &str, most: u64, member: Member<'_>) -> Result<Option<usize>, ApiError> {
    match member(name) {
        None => Ok(None),
        Some(value) => match value.as_u64().filter(|n| (1..=most).contains(n)) {
            Some(n) => Ok(Some(n as usize)),
            None => Err(invalid(name, value)),
        },
    }
}

/// Parts of stored texts, which Nouveau does not have: by the names of `_search`.
fn highlight_of(member: Member<'_>) -> Result<Option<TextHighlight>, ApiError> {
    let Some(fields) = member("highlight_fields") else {
        return Ok(None);
    };
    let mut options = TextHighlightOptions::default();
    if let Some(tag) = text_of("highlight_pre_tag", member)? {
        options.pre_tag = highlight_tag(tag)?;
    }
    if let Some(tag) = text_of("highlight_post_tag", member)? {
        options.post_tag = highlight_tag(tag)?;
    }
    if let Some(number) = number_of("highlight_number", HIGHLIGHTS_MAX, member)? {
        options.number = number;
    }
    if let Some(size) = number_of("highlight_size", HIGHLIGHT_SIZE_MAX, member)? {
        options.size = size;
    }
    let names = fields.as_array().map(|list| {
        let names = list.iter().map(|name| name.as_str().map(str::to_owned));
        names.collect::<Option<Vec<_>>>()
    });
    match names {
        Some(Some(fields)) => {
            within(fields.len(), FIELDS_MAX, "fields to highlight")?;
            Ok(Some(TextHighlight { fields, options }))
        }
        _ => Err(invalid("highlight_fields", fields)),
    }
}

/// Hits in groups, which Nouveau does not have: by the names of `_search`.
fn group_of(member: Member<'_>) -> Result<Option<TextGrouping>, ApiError> {
    let Some(field) = text_of("group_field", member)? else {
        return Ok(None);
    };
    Ok(Some(TextGrouping {
        field,
        sort: member("group_sort").map_or(Ok(vec![]), |sort| sort_of(&sort))?,
        limit: number_of("group_limit", GROUP_LIMIT_MAX, member)?.unwrap_or(GROUP_LIMIT),
    }))
}

fn no_query() -> ApiError {
    parse_error("q parameter is mandatory")
}

/// A text, or a list of texts that is one together.
fn query_of(value: &Value) -> Result<String, ApiError> {
    let refused = || invalid("query", value);
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let texts = parts.iter().map(|part| part.as_str().ok_or_else(refused));
            texts.collect()
        }
        _ => Err(refused()),
    }
}

/// It is an `int` of Java.
fn limit_of(n: i64) -> Result<usize, ApiError> {
    match i32::try_from(n) {
        Ok(n) => Ok(n as usize),
        Err(_) => Err(ApiError::bad_request(format!(
            "limit must be less than or equal to {}",
            i32::MAX
        ))),
    }
}

fn top_n_of(n: i64) -> Result<usize, ApiError> {
    if n > TOP_N_MAX {
        return Err(ApiError::bad_request(
            "topN must be less than or equal to 1000",
        ));
    }
    Ok(n as usize)
}

/// The score in an order, as Nouveau has it.
const SCORE: &str = "<score>";

/// Reads one field, or a list: `f`, `-f`, `<score>` for the least relevant first, `-<score>` for the most
/// relevant first.
fn sort_of(value: &Value) -> Result<Vec<TextSortKey>, ApiError> {
    let refused = || invalid("sort", value);
    let fields = match value {
        Value::String(field) => vec![field.as_str()],
        Value::Array(fields) => {
            let fields = fields
                .iter()
                .map(|field| field.as_str().ok_or_else(refused));
            fields.collect::<Result<_, _>>()?
        }
        _ => return Err(refused()),
    };
    let key = |text: &str| {
        let reversed = text.starts_with('-');
        let field = text.strip_prefix(['-', '+']).unwrap_or(text);
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let is_field = !field.is_empty() && field.chars().all(is_of_name);
        if !is_field && (field != SCORE || text.starts_with('+')) {
            return Err(ApiError::bad_request(format!(
                "{text} is not a valid sort parameter"
            )));
        }
        let by = match field {
            "_id" => TextSortBy::Id,
            SCORE => TextSortBy::Score,
            field => TextSortBy::Field(field.to_owned()),
        };
        // Scores are in descending order unless reversed.
        let reversed = reversed != (by == TextSortBy::Score);
        Ok(TextSortKey { by, reversed })
    };
    within(fields.len(), SORT_KEYS_MAX, "fields to sort by")?;
    let mut keys: Vec<_> = fields.into_iter().map(key).collect::<Result<_, _>>()?;
    let is_id = |key: &TextSortKey| key.by == TextSortBy::Id;
    // The id is last in an order of Nouveau, whatever comes before.
    if keys.iter().any(is_id) && !keys.last().is_some_and(is_id) {
        keys.push(TextSortKey {
            by: TextSortBy::Id,
            reversed: false,
        });
    }
    Ok(keys)
}

fn counts_of(value: &Value) -> Result<Vec<String>, ApiError> {
    let fields = value.as_array().ok_or_else(ApiError::invalid_json)?;
    within(fields.len(), FIELDS_MAX, "fields to count")?;
    let field = |field: &Value| field.as_str().map(str::to_owned);
    let fields: Option<Vec<_>> = fields.iter().map(field).collect();
    let fields = fields.ok_or_else(|| invalid("counts", value))?;
    named("counts", &fields)?;
    Ok(fields)
}

/// Nouveau takes no empty names.
fn named<'a>(what: &str, names: impl IntoIterator<Item = &'a String>) -> Result<(), ApiError> {
    match names.into_iter().any(String::is_empty) {
        true => Err(ApiError::bad_request(format!(
            "names of fields in {what} must not be empty"
        ))),
        false => Ok(()),
    }
}

fn ranges_of(value: &Value) -> Result<Vec<(String, Vec<TextRange>)>, ApiError> {
    let fields = value.as_object().ok_or_else(ApiError::invalid_json)?;
    let ranges = fields.values().filter_map(Value::as_array).map(Vec::len);
    within(ranges.sum(), RANGES_MAX, "ranges")?;
    within(fields.len(), FIELDS_MAX, "fields with ranges")?;
    named("ranges", fields.keys())?;
    let of_field = |(field, ranges): (&String, &Value)| {
        let no_list = || parse_error("range values must be lists of objects");
        let ranges = ranges.as_array().ok_or_else(no_list)?;
        let ranges = ranges.iter().map(range_of).collect::<Result<_, _>>()?;
        Ok((field.clone(), ranges))
    };
    fields.iter().map(of_field).collect()
}

fn range_of(value: &Value) -> Result<TextRange, ApiError> {
    let refused = |what: &str| ApiError::bad_request(format!("a range's {what}: {value}"));
    let number = |name: &str| match value.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(n) => double_of(n)
            .map(Some)
            .ok_or_else(|| refused("bounds are numbers")),
    };
    let inclusive = |name: &str| match value.get(name) {
        None => Ok(true),
        Some(flag) => text_flag(flag).ok_or_else(|| refused("inclusiveness is a boolean")),
    };
    let label = match value.get("label") {
        Some(Value::String(label)) => Some(label.clone()),
        Some(Value::Number(label)) => Some(label.to_string()),
        _ => None,
    };
    let (low, high) = text_bounds(
        number("min")?,
        inclusive("min_inclusive")?,
        number("max")?,
        inclusive("max_inclusive")?,
    );
    Ok(TextRange {
        label: label.ok_or_else(|| refused("label is a string"))?,
        low,
        high,
    })
}

/// A number as Nouveau's JSON library parses it: also from a text.
fn double_of(value: &Value) -> Option<f64> {
    let Value::String(text) = value else {
        return value.as_f64();
    };
    match text.trim() {
        "Infinity" | "+Infinity" | "INF" | "+INF" => Some(f64::INFINITY),
        "-Infinity" | "-INF" => Some(f64::NEG_INFINITY),
        // Rust has other words for these.
        number if number.contains(|c: char| c.is_alphabetic() && !matches!(c, 'e' | 'E')) => None,
        number => number.parse().ok(),
    }
}

// ---- what is answered

#[derive(Serialize)]
struct ShownGroup<'a> {
    by: Option<&'a str>,
    hits: ShownHits<'a>,
    total_hits: u64,
}

#[derive(Serialize)]
struct Shown<'a> {
    bookmark: &'a str,
    counts: ShownCounts<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<ShownGroup<'a>>>,
    hits: ShownHits<'a>,
    ranges: Value,
    total_hits: u64,
    total_hits_relation: &'static str,
    update_latency: u64,
}

fn shown<'a>(answer: &'a TextAnswer, hits: ShownHits<'a>, latency_us: u64) -> Shown<'a> {
    static NO_COUNTS: TextCounts = Vec::new();
    let groups = answer.groups.as_ref().map(|groups| {
        let groups = groups.iter().map(|group| ShownGroup {
            by: group.by.as_deref(),
            hits: ShownHits {
                hits: &group.hits,
                ..hits
            },
            total_hits: group.total,
        });
        groups.collect()
    });
    Shown {
        hits,
        groups,
        bookmark: &answer.bookmark,
        counts: ShownCounts(answer.counts.as_ref().unwrap_or(&NO_COUNTS)),
        ranges: ranges_value(answer.ranges.as_ref().unwrap_or(&NO_COUNTS)),
        total_hits: answer.total,
        total_hits_relation: "EQUAL_TO",
        update_latency: latency_us,
    }
}

fn order_value(value: &TextSortValue) -> Value {
    match value {
        TextSortValue::Null => json!({"@type": "null", "value": null}),
        TextSortValue::Score(score) => json!({"@type": "float", "value": score}),
        TextSortValue::Number(n) => json!({"@type": "double", "value": n}),
        TextSortValue::Text(text) => json!({"@type": "string", "value": text}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(body: Value) -> (String, String) {
        let e = asked_in(body.as_object().unwrap()).err().unwrap();
        (e.error.into_owned(), e.reason.into_owned())
    }

    #[test]
    fn what_is_asked_badly_is_refused_as_nouveau_refuses_it() {
        let parse = |reason: &str| ("query_parse_error".to_owned(), reason.to_owned());
        assert_eq!(refusal(json!({})), parse("q parameter is mandatory"));
        assert_eq!(
            refusal(json!({"q": "x", "limit": 0})),
            parse("limit parameter must be greater than zero")
        );
        assert_eq!(
            refusal(json!({"q": "x", "limit": "5"})),
            parse("Invalid value for limit: \"5\"")
        );
        assert_eq!(
            refusal(json!({"q": "x", "ranges": {"n": 5}})),
            parse("range values must be lists of objects")
        );
        assert_eq!(
            refusal(json!({"q": "x", "counts": "g"})).1,
            "invalid UTF-8 JSON"
        );
        for sort in ["n<double>", "a b", "", "-", "--n", "ü"] {
            let expected = format!("{sort} is not a valid sort parameter");
            assert_eq!(refusal(json!({"q": "x", "sort": [sort]})).1, expected);
        }
        let empty = "names of fields in counts must not be empty";
        assert_eq!(refusal(json!({"q": "x", "counts": [""]})).1, empty);
        let long = "limit must be less than or equal to 2147483647";
        assert_eq!(
            refusal(json!({"q": "x", "limit": 2_147_483_648_u64})).1,
            long
        );
    }

    #[test]
    fn ranges_are_read_as_javas_library_reads_them() {
        let range = |value: Value| range_of(&value).map(|r| (r.label, r.low, r.high));
        use std::ops::Bound::{Excluded, Included};
        assert_eq!(
            range(
                json!({"label": 1, "min": "-Infinity", "max": " 1.5e3 ", "max_inclusive": "false"})
            )
            .unwrap(),
            ("1".into(), Included(f64::NEG_INFINITY), Excluded(1500.0))
        );
        for bad in [
            json!({"label": "x", "min": "NaN"}),
            json!({"label": "x", "min": "a"}),
            json!({"label": "x", "min": []}),
            json!({"label": "x", "min_inclusive": "no"}),
            json!({"min": 1}),
        ] {
            assert!(range(bad).is_err());
        }
    }

    #[test]
    fn sorts_are_fields_with_a_sign() {
        let keys = sort_of(&json!([
            "-a",
            "+b",
            "c",
            "_id",
            "<score>",
            "-<score>",
            "relevance",
            "-relevance"
        ]))
        .unwrap();
        let field = |name: &str| TextSortBy::Field(name.to_owned());
        let expected = [
            (field("a"), true),
            (field("b"), false),
            (field("c"), false),
            (TextSortBy::Id, false),
            (TextSortBy::Score, true),
            (TextSortBy::Score, false),
            (field("relevance"), false),
            (field("relevance"), true),
            // The id is last.
            (TextSortBy::Id, false),
        ];
        let expected = expected.map(|(by, reversed)| TextSortKey { by, reversed });
        assert_eq!(keys, expected);
    }
}
