//! Text indexes by Clouseau's interface: `_search/{index}`, `_search_info/{index}`, `_search_disk_size/{index}` and `_search_analyze`.

mod asked;

use analysis::{FieldAnalyzers, Flavour};
use database::{TextAnswer, TextGroup, TextHit, TextInfo, TextSortBy, TextSortKey, TextSortValue};
use serde::Serialize;
use serde_json::{Value, json};

use crate::database_routes::texts::{
    HitDocuments, ShownCounts, ShownHits, blocking, current_index, in_turn, index_of, ranges_value,
    response_text, tokens, within_wait,
};
use crate::database_routes::views::require_visible;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use asked::Asked;
use node::Access;

type Answer = Result<Reply, ApiError>;

/// `_search/{index}`
pub async fn search(req: &mut Request, access: &Access, id: &str, path: &[String]) -> Answer {
    let [name] = path else {
        return Err(ApiError::bad_request("path not recognized"));
    };
    let design = access.db.design_async(id).await?;
    require_visible(access, id)?;
    let asked = match req.method.as_str() {
        "POST" => {
            // CouchDB reads this body whatever its content type is.
            // Its room stays taken while the search waits.
            let body = req.json_object().await?;
            Asked::of_body(&body, req.query.get("partition"))?
        }
        _ => Asked::of_params(&req.query)?,
    };
    asked.check(access.db.is_partitioned(), design.spec.partitioned)?;
    let index = current_index(access, id, (Flavour::Clouseau, name), asked.update).await?;
    let turn = within_wait(access.db.text_turn(index.docs(), &asked.cost())).await?;
    let db = access.db.clone();
    in_turn(turn, move || {
        let query = asked.query(&index, db.is_partitioned())?;
        let (answer, memory) = db.search_text(&index, &query)?;
        let documents = HitDocuments::new(&db, &memory);
        let hits = ShownHits {
            hits: &answer.hits,
            order: &|hit: &TextHit| order_values(hit, &query.sort),
            documents: asked.include_docs.then_some(&documents),
        };
        response_text(&shown(&answer, hits, asked.is_old_group), &documents)
    })
    .await
}

/// `_search_info/{index}`
pub async fn info(access: &Access, id: &str, path: &[String]) -> Answer {
    about(access, id, path, |info| {
        let mut answer = json!({
            "signature": info.signature,
            "pending_seq": info.update_seq + info.updates_pending,
            "committed_seq": info.update_seq,
            "purge_seq": info.purge_seq,
            "doc_count": info.docs,
            "doc_del_count": info.deleted_docs,
            "disk_size": info.file_bytes,
        });
        if info.left_out > 0 {
            answer["doc_left_out_count"] = info.left_out.into();
        }
        answer
    })
    .await
}

/// `_search_disk_size/{index}`
pub async fn disk_size(access: &Access, id: &str, path: &[String]) -> Answer {
    about(
        access,
        id,
        path,
        |info| json!({"disk_size": info.file_bytes}),
    )
    .await
}

async fn about(
    access: &Access,
    id: &str,
    path: &[String],
    shown: impl Fn(&TextInfo) -> Value,
) -> Answer {
    let [name] = path else {
        return Err(ApiError::bad_request("path not recognized"));
    };
    let design = access.db.design_async(id).await?;
    let index = index_of(access, design, Flavour::Clouseau, name).await?;
    let db = access.db.clone();
    let info = blocking(move || Ok(db.text_info(&index)?)).await?;
    Ok(Reply::json(
        200,
        &json!({"name": format!("{id}/{name}"), "search_index": shown(&info)}),
    ))
}

/// `_search_analyze`
pub async fn analyze(req: &mut Request) -> Answer {
    let (analyzer, text) = match req.method.as_str() {
        "POST" => {
            req.require_json()?;
            let mut body = req.json_object().await?;
            (body.remove("analyzer"), body.remove("text"))
        }
        _ => {
            let param = |name: &str| req.query.get(name).map(|value| json!(value));
            (param("analyzer"), param("text"))
        }
    };
    let refused = |reason: &str| ApiError::bad_request(reason.to_owned());
    let analyzer = analyzer.ok_or_else(|| refused("analyzer parameter is mandatory"))?;
    let is_definition = analyzer.is_string() || analyzer.as_object().is_some_and(|o| !o.is_empty());
    if !is_definition {
        return Err(refused("analyzer parameter must be a string or an object"));
    }
    let text = text.ok_or_else(|| refused("text parameter is mandatory"))?;
    let text = text
        .as_str()
        .ok_or_else(|| refused("text parameter must be a string"))?;
    let analyzers = FieldAnalyzers::parse(Flavour::Clouseau, Some(&analyzer));
    let analyzers = analyzers.map_err(|e| ApiError::bad_request(e.to_string()))?;
    // Of `perfield` that of the default field: there is no other one in the text.
    tokens(req, analyzers.of("default").clone(), text.to_owned()).await
}

// ---- what is answered

#[derive(Serialize)]
#[serde(untagged)]
enum Shown<'a> {
    Rows {
        bookmark: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        counts: Option<ShownCounts<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        ranges: Option<Value>,
        rows: ShownHits<'a>,
        total_rows: u64,
    },
    Groups {
        groups: Vec<ShownGroup<'a>>,
        total_rows: u64,
    },
    /// By `group_by`.
    OldGroups {
        groups: Vec<ShownOldGroup<'a>>,
        total_grouped_hits: u64,
        total_hits: u64,
    },
}

#[derive(Serialize)]
struct ShownGroup<'a> {
    by: Option<&'a str>,
    rows: ShownHits<'a>,
    total_rows: u64,
}

#[derive(Serialize)]
struct ShownOldGroup<'a> {
    by: Option<&'a str>,
    hits: ShownHits<'a>,
    total_hits: u64,
}

fn shown<'a>(answer: &'a TextAnswer, hits: ShownHits<'a>, is_old_group: bool) -> Shown<'a> {
    let Some(groups) = &answer.groups else {
        return Shown::Rows {
            bookmark: &answer.bookmark,
            counts: answer.counts.as_ref().map(ShownCounts),
            ranges: answer.ranges.as_ref().map(ranges_value),
            rows: hits,
            total_rows: answer.total,
        };
    };
    let hits_of = |group: &'a TextGroup| ShownHits {
        hits: &group.hits,
        ..hits
    };
    let groups = groups.iter();
    if is_old_group {
        return Shown::OldGroups {
            total_grouped_hits: groups.clone().map(|group| group.total).sum(),
            total_hits: answer.total,
            groups: groups
                .map(|group| ShownOldGroup {
                    by: group.by.as_deref(),
                    hits: hits_of(group),
                    total_hits: group.total,
                })
                .collect(),
        };
    }
    Shown::Groups {
        total_rows: answer.total,
        groups: groups
            .map(|group| ShownGroup {
                by: group.by.as_deref(),
                rows: hits_of(group),
                total_rows: group.total,
            })
            .collect(),
    }
}

/// The values by which a hit was sorted, and its number.
fn order_values(hit: &TextHit, sort: &[TextSortKey]) -> Vec<Value> {
    let by_score = [TextSortKey {
        by: TextSortBy::Score,
        reversed: false,
    }];
    let keys = if sort.is_empty() { &by_score } else { sort };
    let values = hit
        .order
        .iter()
        .zip(keys)
        .map(|(value, key)| match (value, &key.by) {
            (_, TextSortBy::Id) => hit.number.into(),
            (TextSortValue::Null, _) => Value::Null,
            (TextSortValue::Score(score), _) => json!(score),
            (TextSortValue::Number(n), _) => json!(n),
            (TextSortValue::Text(text), _) => json!(text),
        });
    values.chain([hit.number.into()]).collect()
}
