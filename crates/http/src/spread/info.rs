//! The information on a spread database: the counts of all shards together.

use std::sync::Arc;

use bytes::Bytes;
use database::Database;
use futures_util::future::try_join_all;
use member::Member;
use serde_json::Value;

use super::shard_nodes::ShardNodes;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;

/// Maximum size of the information on a shard, in bytes.
const INFO_BYTES_MAX: usize = 1 << 20;
/// The counts, by their paths.
const COUNTS: [&str; 5] = [
    "/doc_count",
    "/doc_del_count",
    "/sizes/file",
    "/sizes/external",
    "/sizes/active",
];
/// The update seqs.
const SEQS: [&str; 2] = ["/update_seq", "/purge_seq"];

/// Answers a request for the information on a database.
pub async fn info(
    member: &Arc<Member>,
    req: &Request,
    db: Arc<Database>,
) -> Result<Reply, ApiError> {
    let nodes = ShardNodes::new(member, db, req, Bytes::new());
    let of_shard = |shard| {
        let nodes = &nodes;
        async move {
            let body = nodes.get(shard, "").await?;
            let text = body.read(INFO_BYTES_MAX).await;
            let text = text.map_err(|e| ApiError::busy(e.to_string()))?;
            serde_json::from_slice::<Value>(&text).map_err(odd)
        }
    };
    let infos = try_join_all((0..nodes.count()).map(of_shard)).await?;
    let joined = joined(infos, |seqs| Ok(nodes.db.joined_seq(seqs)?))?;
    Ok(Reply::json(200, &joined))
}

fn odd(why: impl ToString) -> ApiError {
    ApiError::internal("A node's information has another form.", why)
}

/// Joins the information on shards, in their order.
fn joined(
    infos: Vec<Value>,
    join_seqs: impl Fn(&[String]) -> Result<String, ApiError>,
) -> Result<Value, ApiError> {
    let mut whole = infos.first().cloned().unwrap_or_default();
    for path in COUNTS {
        let counts = infos.iter().map(|info| info.pointer(path));
        let counts: Option<Vec<u64>> = counts.map(|count| count?.as_u64()).collect();
        let sum: u64 = counts.ok_or_else(|| odd(path))?.iter().sum();
        set(&mut whole, path, sum.into());
    }
    for path in SEQS {
        let seqs = infos.iter().map(|info| info.pointer(path));
        let seqs: Option<Vec<String>> = seqs.map(|seq| Some(seq?.as_str()?.to_owned())).collect();
        let seq = join_seqs(&seqs.ok_or_else(|| odd(path))?)?;
        set(&mut whole, path, seq.into());
    }
    let compacts = |info: &Value| info.pointer("/compact_running") == Some(&Value::Bool(true));
    let compacts = infos.iter().any(compacts);
    set(&mut whole, "/compact_running", compacts.into());
    Ok(whole)
}

fn set(whole: &mut Value, path: &str, value: Value) {
    if let Some(member) = whole.pointer_mut(path) {
        *member = value;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_are_added_and_seqs_joined() {
        let info = |count: u64, seq: &str, compacts: bool| {
            json!({
                "db_name": "a", "purge_seq": seq, "update_seq": seq,
                "sizes": {"file": count, "external": 2 * count, "active": 1},
                "doc_del_count": count, "doc_count": 3, "compact_running": compacts,
            })
        };
        let infos = vec![info(1, "1-a", false), info(4, "2-b", true)];
        let whole = joined(infos, |seqs| Ok(seqs.join("+")));
        let whole = whole.unwrap_or_else(|e| panic!("{}", e.reason));
        let wanted = json!({
            "db_name": "a", "purge_seq": "1-a+2-b", "update_seq": "1-a+2-b",
            "sizes": {"file": 5, "external": 10, "active": 2},
            "doc_del_count": 5, "doc_count": 6, "compact_running": true,
        });
        assert_eq!(whole.to_string(), wanted.to_string());
        assert!(joined(vec![json!({})], |_| Ok(String::new())).is_err());
    }
}
