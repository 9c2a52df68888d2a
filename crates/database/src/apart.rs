//! Work that takes long for a request, on a few threads that give way to those that serve requests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use telemetry::{BACKGROUND_NICE, State, give_way};
use tokio::sync::oneshot;

type Work = Box<dyn FnOnce() + Send>;

/// Has a thread with a lower priority do `work`; nothing is answered when it panics. There are as many such threads as cores:
/// what waits for others is not for them.
pub fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
    static WORK: LazyLock<Sender<Work>> = LazyLock::new(start);
    let (reply, receiver) = oneshot::channel();
    let work = move || {
        // Who asked may have gone.
        if !reply.is_closed() {
            let _reads = telemetry::enter(State::Read);
            drop(reply.send(work()));
        }
    };
    // Without threads it is dropped, and with it `reply`.
    drop(WORK.send(Box::new(work)));
    receiver
}

fn start() -> Sender<Work> {
    let (sender, receiver) = channel();
    let receiver = Arc::new(Mutex::new(receiver));
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get());
    for _ in 0..threads {
        let receiver = receiver.clone();
        let thread = std::thread::Builder::new().name("apart".into());
        if let Err(error) = thread.spawn(move || work_on(&receiver)) {
            tracing::error!(%error, "a thread for long work did not start");
        }
    }
    sender
}

fn work_on(receiver: &Mutex<Receiver<Work>>) {
    give_way(BACKGROUND_NICE);
    loop {
        let next = receiver.lock().recv();
        let Ok(work) = next else { return };
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            tracing::error!("long work for a request panicked");
        }
    }
}
