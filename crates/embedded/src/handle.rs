//! Handles: objects that are closed with their directory, even while a host holds them, and that a
//! forked process does not touch.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::{Error, Result};

/// An object until it is closed, by its holder or with its directory. Used by one thread at a time.
#[derive(Debug)]
pub struct Handle<T> {
    value: Mutex<Option<T>>,
    process: u32,
}

impl<T> Handle<T> {
    /// Uses it.
    ///
    /// # Errors
    /// [`Error::closed`], [`Error::forked`].
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        self.check()?;
        let mut value = self.value.lock();
        work(value.as_mut().ok_or_else(Error::closed)?)
    }

    /// Takes it out, for work that waits: [`Handle::put_back`] brings it in again.
    pub(crate) fn take(&self) -> Result<T> {
        self.check()?;
        self.value.lock().take().ok_or_else(Error::closed)
    }

    pub(crate) fn put_back(&self, value: T) {
        *self.value.lock() = Some(value);
    }

    fn check(&self) -> Result<()> {
        match self.process == std::process::id() {
            true => Ok(()),
            false => Err(Error::forked()),
        }
    }
}

/// An object that is closed with a directory.
pub(crate) trait Closes: Send + Sync {
    fn close(&self);
}

impl<T: Send> Closes for Handle<T> {
    fn close(&self) {
        if self.process == std::process::id() {
            drop(self.value.lock().take());
        }
    }
}

impl<T> Handle<T> {
    /// Releases it. A second call does nothing.
    pub fn close(&self)
    where
        T: Send,
    {
        Closes::close(self);
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // It belongs to threads that are not in this process.
            std::mem::forget(self.value.get_mut().take());
        }
    }
}

/// The slots of a directory.
#[derive(Default)]
pub(crate) struct Handles(Mutex<Vec<Weak<dyn Closes>>>);

/// Number of handles below which closed ones are not collected.
const KEPT_MIN: usize = 64;

impl Handles {
    pub fn add<T: Send + 'static>(&self, value: T) -> Arc<Handle<T>> {
        let handle = Arc::new(Handle {
            value: Mutex::new(Some(value)),
            process: std::process::id(),
        });
        let mut all = self.0.lock();
        if all.len() >= KEPT_MIN && all.len() == all.capacity() {
            all.retain(|handle| handle.strong_count() > 0);
        }
        let weak: Weak<Handle<T>> = Arc::downgrade(&handle);
        all.push(weak);
        handle
    }

    pub fn close(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        for handle in all.iter().filter_map(Weak::upgrade) {
            handle.close();
        }
    }
}
