//! Cancelling work: JavaScript has a number for each cancellable operation, which an `AbortSignal`
//! cancels.

use std::collections::HashMap;
use std::sync::LazyLock;

use embedded::Error;
use napi_derive::napi;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::error::exception;

#[derive(Default)]
struct Cancels {
    last: u32,
    all: HashMap<u32, watch::Sender<bool>>,
}

static CANCELS: LazyLock<Mutex<Cancels>> = LazyLock::new(Mutex::default);

/// A number for work that may be cancelled; never 0.
#[napi]
pub fn new_cancel() -> u32 {
    let mut cancels = CANCELS.lock();
    loop {
        cancels.last = cancels.last.wrapping_add(1);
        let id = cancels.last;
        if id != 0 && !cancels.all.contains_key(&id) {
            cancels.all.insert(id, watch::Sender::new(false));
            return id;
        }
    }
}

/// Cancels the work of this number.
#[napi]
pub fn cancel(id: u32) {
    if let Some(sender) = CANCELS.lock().all.get(&id) {
        sender.send_replace(true);
    }
}

/// Forgets a number.
#[napi]
pub fn end_cancel(id: u32) {
    CANCELS.lock().all.remove(&id);
}

/// Does work, unless it is cancelled before it has ended. 0: it cannot be cancelled.
pub async fn cancellable<T>(
    id: u32,
    work: impl Future<Output = embedded::Result<T>>,
) -> napi::Result<T> {
    let receiver = CANCELS.lock().all.get(&id).map(watch::Sender::subscribe);
    let Some(mut receiver) = receiver else {
        return work.await.map_err(exception);
    };
    tokio::select! {
        biased;
        _ = receiver.wait_for(|is| *is) => Err(exception(Error::cancelled())),
        done = work => done.map_err(exception),
    }
}
