//! A place for a request that came on a connection in one of the reserved places.

use futures_util::FutureExt as _;

use crate::app::App;
use crate::connection::places::Ticket;
use crate::connection::room::Class;
use crate::errors::ApiError;
use crate::exchange::login::{is_login, is_only};
use crate::request::Request;

/// Most attempts to read the body of a login that came in a reserved place.
const LOGIN_BODY_READS: usize = 4;

/// Notes whose connection it is, and finds a place for a request that came in one of the reserved places.
pub(super) async fn take_place(app: &App, req: &mut Request) -> Result<(), ApiError> {
    let Some(place) = &req.place else {
        return Ok(());
    };
    let is_admin = req.user.is_admin();
    if req.authenticated.is_some() {
        let name = req.user.name.as_deref().unwrap_or_default();
        (place.seat).note_user(app.places.group_of_user(name), is_admin);
    } else if let Some(address) = req.peer {
        // Behind a proxy that is trusted it is the client's.
        place.seat.note_address(app.places.group_of(address));
    }
    // A health check needs no other place.
    if !place.seat.is_reserved() || is_only(req, "/_up") {
        return Ok(());
    }
    let class = match req.authenticated.is_some() {
        true if is_admin => Class::Admin,
        true => Class::User,
        false => Class::Stranger,
    };
    let place = place.clone();
    if is_login(req) {
        return admit_login(app, req, &place, class).await;
    }
    admit(app, &place, class).await
}

/// Lets a login keep its reserved place if its body has come, and few others do: its client is not known
/// yet, and has no share. How many passwords are checked at a time is limited elsewhere.
async fn admit_login(
    app: &App,
    req: &mut Request,
    place: &Ticket,
    class: Class,
) -> Result<(), ApiError> {
    let mut read = Box::pin(req.bytes());
    let mut come = None;
    for _ in 0..LOGIN_BODY_READS {
        come = (&mut read).now_or_never();
        if come.is_some() {
            break;
        }
        // The connection reads what has come. Nothing is waited for: a flood of stalled logins would hold these places.
        tokio::task::yield_now().await;
    }
    let come = come.transpose()?;
    if come.is_none() || !app.places.keep_for_login(place) {
        admit(app, place, class).await?;
    }
    let body = match come {
        Some(body) => body,
        None => read.as_mut().await?,
    };
    drop(read);
    req.put_back(body);
    Ok(())
}

async fn admit(app: &App, place: &Ticket, class: Class) -> Result<(), ApiError> {
    if app.places.admit(place, class).await {
        return Ok(());
    }
    Err(ApiError::busy(
        "All connections are taken ([chttpd] server_options, or the limit of open files). Retry later.".into(),
    ))
}
