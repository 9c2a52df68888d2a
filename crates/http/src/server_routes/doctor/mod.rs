//! `/_settee/doctor`: problems of this server, with evidence, reason and suggested actions.
//!
//! [`gather`] collects facts, within a budget of time. The crate [`doctor`] runs the checks on them.

mod gather;

use std::time::{Duration, Instant};

use crate::app::App;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::server_routes::this_node;

/// Time for collecting facts: a response takes at most 5 s, whatever the server's size.
const GATHERING_TIME_MAX: Duration = Duration::from_secs(3);

/// One at a time: it reads.
static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Answers a server admin.
pub async fn route(app: &App) -> Result<Reply, ApiError> {
    let Ok(one) = ONE.try_lock() else {
        return Err(ApiError::busy(
            "the server is being examined already".into(),
        ));
    };
    let app = app.shared()?;
    let report = this_node::off_thread(move || {
        // Held until it ends, whether or not a client waits for it.
        let _one = one;
        let began = Instant::now();
        let facts = gather::facts(&app, began, began + GATHERING_TIME_MAX);
        let mut report = doctor::report(&facts);
        report["took_ms"] = (began.elapsed().as_millis() as u64).into();
        report
    });
    Ok(Reply::json(200, &report.await?))
}
