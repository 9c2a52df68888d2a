//! A request for a place, and the place.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

use crate::state::{Waiter, Waiting, Wanted};
use crate::{Busy, Queue, Share};

#[derive(Clone, Debug)]
struct Request {
    queue: Arc<Queue>,
    share: Share,
    wanted: Wanted,
}

/// Waits for a [`Place`]; dropped, it waits no more.
#[derive(Debug)]
#[must_use = "it requests nothing before it is awaited"]
pub struct Admission {
    /// `None` where places are not counted, and once it was answered.
    request: Option<Request>,
    is_patient: bool,
    waiter: Option<Arc<Waiter>>,
}

impl Admission {
    pub(crate) fn new(queue: Arc<Queue>, share: Share) -> Admission {
        Admission {
            request: Some(Request {
                queue,
                share,
                wanted: Wanted::ONE,
            }),
            is_patient: false,
            waiter: None,
        }
    }

    /// Requests this number of places together, for work that holds `held` places already: memory,
    /// for example, whose unit is a place. A user who holds no others gets them whenever as many
    /// are free, and otherwise within its share.
    pub fn places(mut self, count: usize, held: usize) -> Admission {
        if let Some(request) = &mut self.request {
            (request.wanted.count, request.wanted.held) = (count, held);
        }
        self
    }

    /// Counts the places, but not within the user's share: all that are free may be taken.
    pub fn beyond_share(mut self) -> Admission {
        if let Some(request) = &mut self.request {
            request.wanted.is_beyond_share = true;
        }
        self
    }

    /// Is ready immediately, with a place that is not counted.
    pub fn free() -> Admission {
        Admission {
            request: None,
            is_patient: false,
            waiter: None,
        }
    }

    /// Waits until there is a place, and is never refused: for work that is limited elsewhere and
    /// has started (a feed, an answer whose head was sent).
    pub fn patiently(mut self) -> Admission {
        self.is_patient = true;
        self
    }

    /// Waits on this thread until there is a place. Callers limit the number of waiting threads.
    ///
    /// # Errors
    /// Errors of the future.
    pub fn wait(mut self) -> Result<Place, Busy> {
        self.is_patient = true;
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut context = Context::from_waker(&waker);
        let mut admission = pin!(self);
        loop {
            match admission.as_mut().poll(&mut context) {
                Poll::Ready(place) => return place,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    fn enter(&mut self, waker: &Waker) -> Poll<Result<Place, Busy>> {
        let Some(request) = self.request.take() else {
            return Poll::Ready(Ok(Place::uncounted()));
        };
        let (queue, share) = (&request.queue, &request.share);
        let mut state = queue.state.lock();
        if state.try_take(share, request.wanted) {
            drop(state);
            return Poll::Ready(Ok(Place::of(request)));
        }
        let waiting_max = queue.limits.waiting_max;
        if !self.is_patient && !state.make_room(share, waiting_max) {
            return Poll::Ready(Err(Busy { waiting_max }));
        }
        let waiter = Waiter::new(waker.clone(), self.is_patient, request.wanted);
        state.enqueue(share, waiter.clone());
        drop(state);
        self.waiter = Some(waiter);
        self.request = Some(request);
        Poll::Pending
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Future for Admission {
    type Output = Result<Place, Busy>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(waiter) = self.waiter.clone() else {
            return self.enter(context.waker());
        };
        let mut state = waiter.state.lock();
        let answer = match &mut *state {
            Waiting::For(waker) => {
                waker.clone_from(context.waker());
                return Poll::Pending;
            }
            Waiting::Given => match self.request.take() {
                Some(request) => Ok(Place::of(request)),
                None => Ok(Place::uncounted()),
            },
            Waiting::Refused | Waiting::Over => Err(match self.request.take() {
                Some(request) => Busy {
                    waiting_max: request.queue.limits.waiting_max,
                },
                None => Busy { waiting_max: 0 },
            }),
        };
        *state = Waiting::Over;
        Poll::Ready(answer)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let (Some(request), Some(waiter)) = (self.request.take(), self.waiter.take()) else {
            return;
        };
        // Places are given under this lock: after it none is given to this waiter.
        let mut state = request.queue.state.lock();
        state.dequeue(&request.share, &waiter);
        if matches!(*waiter.state.lock(), Waiting::Given) {
            state.give_back(&request.share, request.wanted.count);
        }
        state.forget_idle(&request.share);
    }
}

/// A place of a queue, or several that were requested together, until it is dropped.
#[derive(Debug)]
pub struct Place {
    request: Option<Request>,
    since: Instant,
}

impl Place {
    pub(crate) fn new(queue: Arc<Queue>, share: Share) -> Place {
        Place::of(Request {
            queue,
            share,
            wanted: Wanted::ONE,
        })
    }

    fn of(request: Request) -> Place {
        Place {
            request: Some(request),
            since: Instant::now(),
        }
    }

    /// Returns a place that is not counted.
    pub fn uncounted() -> Place {
        Place {
            request: None,
            since: Instant::now(),
        }
    }

    /// Returns the number of places; 0 for one that is not counted.
    pub fn count(&self) -> usize {
        self.request
            .as_ref()
            .map_or(0, |request| request.wanted.count)
    }

    /// Returns whether a user who holds no more places than the user of this one waits for some:
    /// those who hold more wait for their own share mostly.
    pub fn is_wanted_by_poorer(&self) -> bool {
        let Some(request) = &self.request else {
            return false;
        };
        request.queue.state.lock().poorer_waits(&request.share)
    }

    /// Returns the database that it was given to, where the queue is shared by databases.
    pub fn database(&self) -> Option<&Arc<str>> {
        self.request.as_ref().map(|request| &request.share.database)
    }

    /// Returns whether this place was held for a slice of time and others wait for one: long work
    /// must request a new place.
    pub fn is_wanted(&self) -> bool {
        let Some(request) = &self.request else {
            return false;
        };
        self.since.elapsed() >= request.queue.limits.slice
            && request.queue.state.lock().somebody_waits()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(Request {
            queue,
            share,
            wanted,
        }) = self.request.take()
        else {
            return;
        };
        let mut state = queue.state.lock();
        let is_slow = |after| self.since.elapsed() >= after;
        if queue.limits.slow_after.is_some_and(is_slow) {
            state.note_slow(&share, Instant::now());
        }
        state.give_back(&share, wanted.count);
    }
}
