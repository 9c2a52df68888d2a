//! The information on databases that only other nodes of the cluster have, for `_dbs_info`.

use std::collections::HashMap;

use member::DatabasePart;
use serde_json::{Value, json};

use crate::app::App;
use crate::clustered;
use crate::request::Request;

/// The information by names; `None` if no node that has the database answers.
pub type InfosElsewhere = HashMap<String, Option<Value>>;

/// The path that the other nodes answer.
const PATH: &str = "/_dbs_info";
/// Maximum number of databases of a request to another node.
const NAMES_MAX: usize = 1_000;

/// Returns those of these databases that this node does not have, without information.
pub fn elsewhere<'n>(app: &App, names: impl Iterator<Item = &'n str>) -> InfosElsewhere {
    let member = app.node.member();
    let Some(member) = member.filter(|member| member.gateway().lacks_slots()) else {
        return InfosElsewhere::new();
    };
    let missing = names.filter(|name| {
        member
            .gateway()
            .nodes_for(name, DatabasePart::Whole)
            .is_some()
    });
    missing.map(|name| (name.to_owned(), None)).collect()
}

/// Adds the information that the other nodes have.
pub async fn with_infos(app: &App, req: &Request, mut infos: InfosElsewhere) -> InfosElsewhere {
    let missing: Vec<String> = infos.keys().cloned().collect();
    let most = req.settings.chttpd.max_db_number_for_dbs_info_req;
    let most = usize::try_from(most).unwrap_or(NAMES_MAX);
    for names in missing.chunks(most.clamp(1, NAMES_MAX)) {
        let body = json!({"keys": names}).to_string();
        for answer in clustered::ask_others_with_json(app, req, PATH, body.into()).await {
            take(answer, &mut infos);
        }
    }
    infos
}

/// Takes the information from the response of a node.
fn take(answer: Value, infos: &mut InfosElsewhere) {
    let Value::Array(rows) = answer else {
        return;
    };
    for mut row in rows {
        let info = row.get_mut("info").map(Value::take);
        let of = row.get("key").and_then(Value::as_str);
        let of = of.and_then(|name| infos.get_mut(name));
        if let (Some(of), Some(info)) = (of, info) {
            *of = Some(info);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_of_nodes_that_have_a_database_count() {
        let mut infos: InfosElsewhere = ["a", "b"].map(|name| (name.to_owned(), None)).into();
        take(
            json!([{"key": "a", "error": "timeout"}, {"key": "c", "info": {}}]),
            &mut infos,
        );
        take(json!({"error": "forbidden"}), &mut infos);
        take(json!([{"key": "a", "info": {"doc_count": 3}}]), &mut infos);
        assert_eq!(infos.len(), 2);
        assert_eq!(infos["a"], Some(json!({"doc_count": 3})));
        assert_eq!(infos["b"], None);
    }
}
