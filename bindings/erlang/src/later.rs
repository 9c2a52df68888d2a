//! Values that are dropped on a thread of their own. Erlang frees a resource on the scheduler that
//! finds its last reference gone, and none of its processes runs there meanwhile.

use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use parking_lot::Mutex;

type Dropped = Box<dyn Send>;

/// The thread that drops values; none when the system has no thread for it.
static DROPPER: OnceLock<Option<Mutex<Sender<Dropped>>>> = OnceLock::new();

fn start() -> Option<Mutex<Sender<Dropped>>> {
    let (sender, dropped) = channel::<Dropped>();
    let thread = std::thread::Builder::new().name("settee-drop".to_owned());
    let started = thread.spawn(move || dropped.into_iter().for_each(drop));
    started.ok().map(|_| Mutex::new(sender))
}

/// A value that another thread drops.
pub struct Later<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> Later<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Later<T> {
        Later(Some(value))
    }
}

impl<T: Send + 'static> Deref for Later<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is taken when it is dropped")
    }
}

impl<T: Send + 'static> Drop for Later<T> {
    fn drop(&mut self) {
        let Some(value) = self.0.take() else {
            return;
        };
        if let Some(dropper) = DROPPER.get_or_init(start) {
            // The thread never ends, so that it takes every value.
            let _ = dropper.lock().send(Box::new(value));
        }
    }
}
