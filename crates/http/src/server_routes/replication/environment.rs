//! This server as the replicator sees it: settings, databases by their names, filters.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use auth::UserCtx;
use config::Config;
use database::{CreateOptions, Filter};
use document::EditDoc;
use hyper::HeaderMap;
use replicator::{Allowed, Environment, Error, LocalPeer, Pending, Selection, Settings, User};
use serde_json::{Map, Value};

use crate::app::App;
use crate::design_routes::calls;
use crate::document_routes::documents::check_document;
use crate::errors::ApiError;
use node::Access;
use node::{Query, Said, caller, encode_into, named_filter, open_for_replication, selector_filter};

/// The server behind a replicator.
pub struct Surroundings(pub Weak<App>);

impl Surroundings {
    fn app(&self) -> Result<Arc<App>, Error> {
        self.0.upgrade().ok_or(Error::Stopped)
    }
}

fn context(user: &User) -> UserCtx {
    UserCtx {
        name: user.name.clone(),
        roles: user.roles.clone(),
    }
}

/// Why a database of this server cannot be replicated with.
fn told(e: node::Error, db: &str) -> Error {
    use node::Error as E;
    match e {
        E::AnonymousNoMember | E::NoMember | E::NoServerAdmin => Error::Unauthorized(db.to_owned()),
        E::Database(database::Error::NoDatabase) => Error::NoDatabase(db.to_owned()),
        E::Database(e) => e.into(),
        e => Error::Request(e.to_string()),
    }
}

impl Environment for Surroundings {
    fn settings(&self) -> Settings {
        let read = self.0.upgrade().map(|app| settings(&app.config));
        match read {
            Some(Ok(settings)) => settings,
            Some(Err(e)) => {
                tracing::warn!(error = %e, "[replicator] has its defaults");
                Settings::default()
            }
            None => Settings::default(),
        }
    }

    fn uuid(&self) -> String {
        self.0
            .upgrade()
            .map(|app| app.uuid.clone())
            .unwrap_or_default()
    }

    fn is_admin(&self, name: &str) -> bool {
        self.0.upgrade().is_some_and(|app| app.auth.is_admin(name))
    }

    fn listening(&self) -> Vec<SocketAddr> {
        let app = self.0.upgrade();
        app.map(|app| app.listening()).unwrap_or_default()
    }

    fn token(&self, owner: &str) -> Option<String> {
        Some(self.0.upgrade()?.auth.token_of_replication(owner))
    }

    fn node(&self) -> String {
        let app = self.0.upgrade();
        app.map(|app| app.node.clone()).unwrap_or_default()
    }

    fn open(
        &self,
        db: &str,
        user: &User,
        selection: Option<&Selection>,
    ) -> Result<LocalPeer, Error> {
        let app = self.app()?;
        let found = app.databases.get(db);
        let found = found.map_err(|_| Error::NoDatabase(db.to_owned()))?;
        let context = context(user);
        let access = open_for_replication(&app.auth, found, &context).map_err(|e| told(e, db))?;
        let filter = selection.map(|s| filter(&app, &access, &context, s));
        let filter = filter
            .transpose()
            .map_err(|e| Error::FilterFetch(format!("Couldn't open the filter on `{db}`: {e}")))?;
        let check = {
            let app = self.0.clone();
            let db = access.db.clone();
            move |doc: &EditDoc| -> Result<(), (String, String)> {
                let Some(app) = app.upgrade() else {
                    return Ok(());
                };
                let no = |e: ApiError| (e.error.into_owned(), e.reason.into_owned());
                check_document(doc, &app.limits()).map_err(no)?;
                match &doc.id {
                    Some(id) => db.check_id(id).map_err(|e| no(e.into())),
                    None => Ok(()),
                }
            }
        };
        Ok(LocalPeer {
            caller: caller(&context),
            is_admin: access.is_admin,
            db: access.db,
            filter: filter.flatten(),
            check: Arc::new(check),
            attachment_bytes_max: app.limits().max_attachment_size,
        })
    }

    fn create<'a>(
        &'a self,
        db: &'a str,
        user: &'a User,
        params: &'a Map<String, Value>,
    ) -> Pending<'a, Result<(), Error>> {
        Box::pin(async move {
            let app = self.app()?;
            if app.databases.get(db).is_ok() {
                return Ok(());
            }
            if !user.is_admin() {
                return Err(Error::Unauthorized(db.to_owned()));
            }
            let options = create_options(&app, params)?;
            match app.databases.create(db, options).await {
                Ok(_) | Err(database::Error::DatabaseExists) => Ok(()),
                Err(e) => Err(e.into()),
            }
        })
    }
}

fn create_options(app: &App, params: &Map<String, Value>) -> Result<CreateOptions, Error> {
    let text = |name: &str| match params.get(name) {
        Some(Value::String(text)) => Some(text.clone()),
        other => other.map(Value::to_string),
    };
    let bad =
        |name: &str| Error::BadRequest(format!("`{name}` in create_target_params is not valid"));
    let q = text("q")
        .map(|q| q.parse::<u32>().map_err(|_| bad("q")))
        .transpose()?;
    let partitioned = match text("partitioned").as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(bad("partitioned")),
    };
    let setting = app.config.get_str("couchdb", "default_security");
    let setting = setting.map_err(|e| Error::Request(e.to_string()))?;
    let default_q = app.config.get_u64("cluster", "q").unwrap_or(2) as u32;
    Ok(CreateOptions {
        q: q.or(Some(default_q)),
        n: Some(1),
        partitioned,
        security: auth::DefaultSecurity::from_setting(&setting)
            .json()
            .to_owned(),
    })
}

/// What a feed over HTTP with these parameters would be filtered by; `None` for what the replicator does itself.
fn filter(
    app: &App,
    access: &Access,
    user: &UserCtx,
    selection: &Selection,
) -> Result<Option<Filter>, node::Error> {
    match selection {
        Selection::All | Selection::Ids(_) => Ok(None),
        Selection::Selector(selector) => {
            let selector = mango::Selector::parse(&Value::Object(selector.clone()));
            selector_filter(selector, None).map(Some)
        }
        Selection::Filter { name, params } => {
            let mut raw_query = String::from("filter=");
            encode_into(name, &mut raw_query);
            for (name, value) in params {
                let text = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                raw_query.push('&');
                encode_into(name, &mut raw_query);
                raw_query.push('=');
                encode_into(&text, &mut raw_query);
            }
            let query = Query::parse(Some(&raw_query));
            let (path, headers) = (format!("/{}/_changes", access.db.name()), HeaderMap::new());
            let segments = [access.db.name().as_bytes().to_vec(), b"_changes".to_vec()];
            let said = Said {
                method: "GET",
                path: &path,
                raw_query: Some(&raw_query),
                requested_path: None,
                segments: &segments,
                query: &query,
                headers: &headers,
                peer: None,
                user,
                body: None,
            };
            let request = || calls::request_json_of(app, &said, access, None);
            named_filter(access, &query, name, request).map(Some)
        }
    }
}

fn settings(c: &Config) -> Result<Settings, config::ConfigError> {
    const SECTION: &str = "replicator";
    let number = |key| c.get_u64(SECTION, key);
    let count = |key| number(key).map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let ms = |key| number(key).map(Duration::from_millis);
    let flag = |key| c.get_bool(SECTION, key);
    let text = |key| c.find(SECTION, key).filter(|text| !text.is_empty());
    let words = |key| -> Result<Vec<String>, config::ConfigError> {
        let list = c.get_str(SECTION, key)?;
        let words = list.split(',').map(|word| word.trim().to_owned());
        Ok(words.filter(|word| !word.is_empty()).collect())
    };
    Ok(Settings {
        max_jobs: count("max_jobs")?,
        max_jobs_per_user: count("max_jobs_per_user")?,
        max_churn: count("max_churn")?,
        max_history: count("max_history")?,
        interval: ms("interval")?,
        startup_jitter: ms("startup_jitter")?,
        health_threshold: Duration::from_secs(number("health_threshold")?),
        update_docs: flag("update_docs")?,
        worker_processes: count("worker_processes")?.max(1),
        worker_batch_size: count("worker_batch_size")?.max(1),
        http_connections: count("http_connections")?.clamp(2, 10_000),
        connection_timeout: ms("connection_timeout")?.max(Duration::from_millis(1)),
        retries_per_request: number("retries_per_request")?.min(10_000) as u32,
        use_checkpoints: flag("use_checkpoints")?,
        use_bulk_get: flag("use_bulk_get")?,
        checkpoint_interval: ms("checkpoint_interval")?,
        auth_session: words("auth_plugins")?
            .iter()
            .any(|plugin| plugin == "couch_replicator_auth_session"),
        verify_ssl_certificates: flag("verify_ssl_certificates")?,
        ssl_trusted_certificates_file: text("ssl_trusted_certificates_file"),
        cert_file: text("cert_file"),
        key_file: text("key_file"),
        allowed_addresses: {
            let (allowed, unknown) = Allowed::parse(&c.get_str(SECTION, "allowed_addresses")?);
            for word in unknown {
                // Read again and again.
                tracing::debug!("[replicator] allowed_addresses: {word} is no network");
            }
            allowed
        },
        valid_endpoint_protocols: words("valid_endpoint_protocols")?,
        valid_proxy_protocols: words("valid_proxy_protocols")?,
    })
}
