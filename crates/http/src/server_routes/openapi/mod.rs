//! `/_settee/openapi.json`: a description of the API in OpenAPI 3.1, generated from the route table.

use std::sync::LazyLock;

use bytes::Bytes;
use routes::{Class, Cluster, Group, Kind, Operation, PATH_PARAMETERS, Parameter, Rewrites, Row};
use serde_json::{Map, Value, json};

use crate::reply::Reply;

/// Schemas of bodies and answers, by the names that the route table uses.
const SCHEMAS: &str = include_str!("schemas.json");

const ABOUT: &str = "Settee's HTTP API, which is CouchDB's with additions. `x-settee` of an operation has who may use it \
    (`anybody`, `user`, `member` of the database, `db-admin`, `admin`) and how a cluster treats it. HEAD works where GET does. \
    OpenAPI 3.1 cannot describe the method COPY: such operations are called `x-copy`.";

static TEXT: LazyLock<Bytes> = LazyLock::new(|| {
    let mut text = describe(routes::rows()).to_string();
    text.push('\n');
    text.into()
});

/// Answers with the description.
pub fn route() -> Reply {
    Reply::of_static("application/json", TEXT.clone())
}

/// Describes the operations of rows. A row without operations is not described.
pub fn describe(rows: impl Iterator<Item = &'static Row>) -> Value {
    let mut parts = Parts::default();
    for row in rows {
        for operation in row.operations {
            parts.add(row, operation);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Settee",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"basic": []}, {"cookie": []}, {"token": []}],
        "paths": parts.paths,
        "components": {
            "parameters": parts.parameters,
            "schemas": serde_json::from_str::<Value>(SCHEMAS).expect("the file of schemas is JSON"),
            "responses": {
                "Error": {"description": "An error.", "content": content("application/json", "Error")},
            },
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "AuthSession"},
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            },
        },
    })
}

#[derive(Default)]
struct Parts {
    paths: Map<String, Value>,
    parameters: Map<String, Value>,
}

impl Parts {
    fn add(&mut self, row: &Row, operation: &'static Operation) {
        let path = row.path.replace("...}", "}");
        let described = self.operation(row, &path, operation);
        let in_path: Vec<Value> = names(&path).map(|name| self.path_parameter(name)).collect();
        let methods = self
            .paths
            .entry(path)
            .or_insert_with(|| match in_path.is_empty() {
                true => json!({}),
                false => json!({"parameters": in_path}),
            });
        let method = match operation.method {
            "COPY" => "x-copy".to_owned(),
            method => method.to_ascii_lowercase(),
        };
        methods[method] = described;
    }

    fn operation(&mut self, row: &Row, path: &str, operation: &'static Operation) -> Value {
        let method = operation.method;
        let who = operation.who.unwrap_or(row.who(method)).name();
        let mut described = json!({
            "operationId": id_of(method, path),
            "summary": operation.summary,
            "tags": [tag(row.class(method, None))],
            "responses": responses(operation),
            "x-settee": {
                "who": who,
                "class": row.class(method, None).name(),
                "cluster": cluster(row, method),
                "rewrites": match row.rewrites {
                    Rewrites::Allowed => "allowed",
                    Rewrites::ReadOnly => "read-only",
                },
            },
        });
        let groups = operation.query.iter().copied();
        let query: Vec<Value> = groups.flat_map(|group| self.group(group)).collect();
        if !query.is_empty() {
            described["parameters"] = query.into();
        }
        if let Some((content_type, schema)) = operation.body {
            described["requestBody"] = json!({"content": content(content_type, schema)});
        }
        if who == "anybody" {
            described["security"] = json!([]);
        }
        described
    }

    fn path_parameter(&mut self, name: &str) -> Value {
        let about = PATH_PARAMETERS.iter().find(|(known, _)| *known == name);
        let (_, about) = about.expect("each parameter of a path is described");
        self.parameters
            .entry(format!("path.{name}"))
            .or_insert_with(|| {
                json!({"name": name, "in": "path", "required": true, "description": about, "schema": {"type": "string"}})
            });
        json!({"$ref": format!("#/components/parameters/path.{name}")})
    }

    fn group(&mut self, group: &'static Group) -> Vec<Value> {
        let parameters = group.parameters.iter();
        let references = parameters.map(|parameter| {
            let key = format!("{}.{}", group.name, parameter.name);
            let reference = json!({"$ref": format!("#/components/parameters/{key}")});
            self.parameters
                .entry(key)
                .or_insert_with(|| query_parameter(parameter));
            reference
        });
        references.collect()
    }
}

/// Returns the names of a path's parameters.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn query_parameter(parameter: &Parameter) -> Value {
    let mut described = json!({
        "name": parameter.name,
        "in": "query",
        "description": parameter.about,
    });
    match parameter.kind {
        Kind::Json => described["content"] = json!({"application/json": {"schema": {}}}),
        Kind::Boolean => described["schema"] = json!({"type": "boolean"}),
        Kind::Natural => described["schema"] = json!({"type": "integer", "minimum": 0}),
        Kind::Text => described["schema"] = json!({"type": "string"}),
        Kind::Word(words) => described["schema"] = json!({"enum": words}),
    }
    described
}

fn responses(operation: &Operation) -> Value {
    let mut responses = json!({"default": {"$ref": "#/components/responses/Error"}});
    let mut success = json!({"description": "Success."});
    if let Some((content_type, schema)) = operation.answer {
        success["content"] = content(content_type, schema);
    }
    // An operation that only returns errors has neither a body nor a status.
    if operation.answer.is_some() || operation.status != 200 {
        responses[operation.status.to_string()] = success;
    }
    responses
}

fn content(content_type: &str, schema: &str) -> Value {
    let schema = match schema {
        "Bytes" => json!({}),
        schema => json!({"$ref": format!("#/components/schemas/{schema}")}),
    };
    json!({content_type: {"schema": schema}})
}

/// Returns an id of an operation: its method, and the words of its path.
fn id_of(method: &str, path: &str) -> String {
    let mut id = method.to_ascii_lowercase();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        id.push('_');
        id.extend(part.chars().filter_map(|c| match c {
            '{' | '}' => None,
            '-' | '.' => Some('_'),
            c => Some(c),
        }));
    }
    id
}

/// Returns how a cluster treats a request.
fn cluster(row: &Row, method: &str) -> &'static str {
    match row.cluster {
        Cluster::Node => "node",
        Cluster::Session | Cluster::Control => "control",
        Cluster::Local => "local",
        Cluster::Everywhere => "everywhere",
        Cluster::Documents { .. } if row.reads(method) => "read",
        Cluster::Documents { blind_writes } if blind_writes.contains(&method) => "blind write",
        Cluster::Documents { .. } => "write",
    }
}

/// Returns the chapter that a class belongs to.
fn tag(class: Class) -> &'static str {
    match class {
        Class::Unknown | Class::Welcome | Class::Server | Class::Session => "Server",
        Class::Replication => "Replication",
        Class::Databases | Class::DatabaseCreate | Class::DatabaseDelete => "Databases",
        Class::DatabaseInfo | Class::Properties | Class::Purge | Class::Maintenance => "Databases",
        Class::DocumentRead | Class::DocumentWrite | Class::Local | Class::Listing => "Documents",
        Class::BulkDocs | Class::BulkGet | Class::RevsDiff => "Documents",
        Class::AttachmentRead | Class::AttachmentWrite => "Attachments",
        Class::Changes | Class::Feed => "Changes",
        Class::Find | Class::Index => "Queries",
        Class::View => "Views",
        Class::Search | Class::Nouveau => "Search",
        Class::Design => "Design functions",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Calls `see` with each reference of a value.
    fn references(value: &Value, see: &mut impl FnMut(&str)) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    see(reference);
                }
                members.values().for_each(|value| references(value, see));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, see)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_schema_is_used() {
        let api = describe(routes::rows());
        let mut seen = HashSet::new();
        references(&api, &mut |reference| {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(api.pointer(pointer).is_some(), "{reference}");
            seen.insert(reference.to_owned());
        });
        for name in api["components"]["schemas"].as_object().unwrap().keys() {
            assert!(
                seen.contains(&format!("#/components/schemas/{name}")),
                "{name}"
            );
        }
    }

    #[test]
    fn operations_have_ids_of_their_own_and_methods_of_their_rows() {
        let mut ids = HashSet::new();
        for row in routes::rows() {
            for operation in row.operations {
                assert!(
                    row.allows(operation.method),
                    "{} {}",
                    operation.method,
                    row.path
                );
                assert!(
                    ids.insert(id_of(operation.method, row.path)),
                    "{}",
                    row.path
                );
                assert!(operation.summary.ends_with('.'), "{}", operation.summary);
            }
        }
    }
}
