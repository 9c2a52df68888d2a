//! Checks a request before the router gets it: its host, its URI, who sent it, and its place.

use node::{is_utf8_decoded, is_well_encoded};
use profiler::Label;
use telemetry::{State, within};

use crate::accounting::route_label::label_of;
use crate::app::App;
use crate::browsers::cross_site;
use crate::clustered;
use crate::errors::ApiError;
use crate::exchange::login::{is_login, is_only, requires_login};
use crate::exchange::place::take_place;
use crate::reply::Reply;
use crate::request::{Request, host};
use crate::router;

/// Returns the label of a request's route, which samples of its processor time have.
pub(super) fn label(req: &Request) -> &'static Label {
    label_of(req.class())
}

/// Returns the response of the request's handler, or of the first check that the request fails.
pub(super) async fn route(app: &App, req: &mut Request) -> Result<Reply, ApiError> {
    // Clients of health checks know only the server's address.
    if !req.is_for_us() && !is_only(req, "/_up") {
        return Err(host::misdirected());
    }
    let cors = req.settings.cors.as_ref();
    if let Some(reply) = cors.and_then(|cors| cors.preflight(req)) {
        return Ok(reply);
    }
    if req.target_len as u64 > req.settings.chttpd.max_uri_length {
        return Err(ApiError::new(
            414,
            "too_long",
            "the request uri is too long",
        ));
    }
    let query = req.raw_query.as_deref().unwrap_or_default();
    if !is_well_encoded(&req.path) || !is_well_encoded(query) {
        return Err(ApiError::bad_request("invalid_url_encoding"));
    }
    // CouchDB ignores a parameter whose name was damaged on the way, and returns other results than
    // requested.
    if !is_utf8_decoded(query) {
        return Err(ApiError::bad_request("The query is not valid UTF-8"));
    }
    if let Some(member) = app.node.member()
        && let Some(reply) = Box::pin(clustered::hold(member, req)).await?
    {
        return Ok(reply);
    }
    let (recognised, us) = within!(State::Auth, app.authenticate(req));
    req.auth_us = us;
    if let Some(reply) = recognised? {
        return Ok(reply);
    }
    take_place(app, req).await?;
    let may_be_unknown =
        !requires_login(req) || is_only(req, "/_up") && !req.settings.chttpd.require_valid_user;
    if !may_be_unknown && req.authenticated.is_none() && !is_login(req) {
        return Err(ApiError::unauthorized("Authentication required."));
    }
    // Before rules or functions rewrite anything.
    let may_change = cross_site::may_change(req);
    loop {
        if !may_change && cross_site::changes(req) {
            return Err(cross_site::refusal());
        }
        // Before anything is built: a client that reads no responses gets no more of them.
        if !req.answers.makes_ahead() && router::may_be_long(req) {
            req.begun = req.answers.begin().await?;
        }
        let answer = router::route(app, req).await;
        if !std::mem::take(&mut req.is_rerouted) || answer.is_err() {
            return answer;
        }
    }
}
