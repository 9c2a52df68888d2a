//! The state of a connection that has a place: its activity, and its client.
//!
//! A request costs a few stores to memory that only its connection writes.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use telemetry::Tick;
use tokio::sync::Notify;

use crate::connection::room::{Activity, Occupant};

/// It may stay.
const STAYS: u8 = 0;
/// It has to close unless a request is running.
const LEAVES_AT_REST: u8 = 1;
/// It has to close.
const LEAVES: u8 = 2;

/// A connection that has a place.
pub(crate) struct Seat {
    under_way: AtomicU32,
    has_asked: AtomicBool,
    is_known: AtomicBool,
    is_admin: AtomicBool,
    /// Its user, or its address: see [`Occupant::group`].
    group: AtomicU64,
    /// Since when it is idle, or else has requests under way.
    since_us: AtomicU64,
    began: Tick,
    /// Whether it has one of the reserved places: it must find another place for most requests.
    is_reserved: AtomicBool,
    /// A request under way that may keep the reserved place.
    is_exempt: AtomicBool,
    /// A login is under way that keeps the reserved place until it is answered.
    is_login: AtomicBool,
    leaving: AtomicU8,
    /// Its client sends nothing after the request under way.
    is_last_request: AtomicBool,
    /// How long its last sampled request lay in the socket, in milliseconds.
    socket_wait_ms: AtomicU32,
    /// Its task.
    pub(super) task: AtomicWaker,
    /// Signals that it got a place, or has to close.
    pub(super) changed: Notify,
}

impl Seat {
    /// `began` is when time 0 was.
    pub(super) fn new(group: u64, is_reserved: bool, began: Tick) -> Seat {
        Seat {
            under_way: AtomicU32::new(0),
            has_asked: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            is_admin: AtomicBool::new(false),
            group: AtomicU64::new(group),
            since_us: AtomicU64::new(began.elapsed_us()),
            began,
            is_reserved: AtomicBool::new(is_reserved),
            is_exempt: AtomicBool::new(false),
            is_login: AtomicBool::new(false),
            leaving: AtomicU8::new(STAYS),
            is_last_request: AtomicBool::new(false),
            socket_wait_ms: AtomicU32::new(0),
            task: AtomicWaker::new(),
            changed: Notify::new(),
        }
    }

    /// Begins a request, which ends when the returned guard is dropped.
    pub fn begin(self: &Arc<Self>) -> Busy {
        if self.under_way.fetch_add(1, AcqRel) == 0 {
            self.since_us.store(self.began.elapsed_us(), Relaxed);
            self.has_asked.store(true, Relaxed);
        }
        Busy(self.clone())
    }

    /// Notes the user of a request.
    pub fn note_user(&self, group: u64, is_admin: bool) {
        self.group.store(group, Relaxed);
        self.is_admin.store(is_admin, Relaxed);
        self.is_known.store(true, Relaxed);
    }

    /// Notes the address of a client behind a proxy.
    pub fn note_address(&self, group: u64) {
        self.group.store(group, Relaxed);
    }

    /// Notes that its client sends nothing after the request under way.
    pub(super) fn note_last_request(&self) {
        self.is_last_request.store(true, Relaxed);
    }

    /// Returns whether its client has sent everything: it can be closed in one step.
    pub(super) fn has_last_request(&self) -> bool {
        self.is_last_request.load(Relaxed)
    }

    /// Notes how long a request lay in the socket before it was read.
    pub(super) fn note_socket_wait(&self, ms: u32) {
        self.socket_wait_ms.store(ms, Relaxed);
    }

    /// Returns how long the request that was read last lay in the socket, in milliseconds, once; 0
    /// if that is not known.
    pub fn take_socket_wait(&self) -> u32 {
        // Rarely set: a load costs less than a swap.
        match self.socket_wait_ms.load(Relaxed) {
            0 => 0,
            _ => self.socket_wait_ms.swap(0, Relaxed),
        }
    }

    /// Returns whether requests are under way.
    pub(super) fn is_busy(&self) -> bool {
        self.under_way.load(Acquire) > 0
    }

    /// Returns the time since its last request ended; none while one is under way.
    pub(super) fn idle_time(&self) -> Duration {
        if self.is_busy() {
            return Duration::ZERO;
        }
        let now_us = self.began.elapsed_us();
        Duration::from_micros(now_us.saturating_sub(self.since_us.load(Relaxed)))
    }

    /// Its user, or its address.
    pub(super) fn group(&self) -> u64 {
        self.group.load(Relaxed)
    }

    /// Whether it has one of the reserved places.
    pub fn is_reserved(&self) -> bool {
        self.is_reserved.load(Relaxed)
    }

    /// Assigns a place to it that is not reserved.
    pub(super) fn admit(&self) {
        self.is_reserved.store(false, Relaxed);
        self.changed.notify_one();
    }

    /// Lets the request under way keep the reserved place.
    pub(super) fn exempt(&self) {
        self.is_exempt.store(true, Relaxed);
    }

    pub(super) fn is_exempt(&self) -> bool {
        self.is_exempt.load(Relaxed)
    }

    /// Notes that the request under way is a login that keeps the reserved place.
    pub(super) fn note_login(&self) {
        self.is_login.store(true, Relaxed);
    }

    /// Returns whether a login that keeps the reserved place is under way.
    pub(super) fn is_login(&self) -> bool {
        self.is_login.load(Relaxed)
    }

    /// Its activity at a time.
    pub(super) fn occupant(&self, number: u64, now_us: u64) -> Occupant {
        let activity = match self.under_way.load(Acquire) {
            0 if self.has_asked.load(Relaxed) => Activity::Resting,
            0 => Activity::Silent,
            _ => Activity::Busy,
        };
        Occupant {
            number,
            group: self.group(),
            is_known: self.is_known.load(Relaxed),
            is_admin: self.is_admin.load(Relaxed),
            activity,
            age_us: now_us.saturating_sub(self.since_us.load(Relaxed)),
        }
    }

    /// Closes it; unless `is_forced` only when no request has come meanwhile.
    pub(super) fn ask_to_leave(&self, is_forced: bool) {
        let leaving = if is_forced { LEAVES } else { LEAVES_AT_REST };
        self.leaving.store(leaving, Release);
        self.changed.notify_one();
        self.task.wake();
    }

    /// Whether it has to close.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Acquire) != STAYS
    }

    /// Whether it closes now; `None` when it does not have to.
    pub(super) fn leaves(&self) -> Option<bool> {
        match self.leaving.load(Acquire) {
            STAYS => None,
            LEAVES_AT_REST => Some(self.under_way.load(Acquire) == 0),
            _ => Some(true),
        }
    }

    /// Lets it stay; returns whether it had to close.
    pub(super) fn stay(&self) -> bool {
        self.leaving.swap(STAYS, AcqRel) != STAYS
    }
}

/// A request under way.
pub(crate) struct Busy(Arc<Seat>);

impl Drop for Busy {
    fn drop(&mut self) {
        let seat = &self.0;
        // Before it is idle: it would look as if it had been for long. Other requests keep their time.
        if seat.under_way.load(Acquire) == 1 {
            seat.since_us.store(seat.began.elapsed_us(), Relaxed);
        }
        if seat.under_way.fetch_sub(1, AcqRel) == 1 {
            seat.is_exempt.store(false, Relaxed);
            seat.is_login.store(false, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_silent_then_busy_until_its_last_request_ends_and_then_at_rest() {
        let seat = Arc::new(Seat::new(7, false, Tick::now()));
        let activity = || seat.occupant(0, 0).activity;
        assert_eq!(activity(), Activity::Silent);
        let (first, second) = (seat.begin(), seat.begin());
        drop(first);
        assert_eq!(activity(), Activity::Busy);
        seat.ask_to_leave(false);
        assert_eq!(seat.leaves(), Some(false), "a request has come");
        drop(second);
        assert_eq!((activity(), seat.leaves()), (Activity::Resting, Some(true)));
        assert!(
            !seat.is_busy() && seat.idle_time() <= Duration::from_micros(seat.began.elapsed_us())
        );
        let _busy = seat.begin();
        assert!(seat.is_busy() && seat.idle_time().is_zero());
        seat.ask_to_leave(true);
        assert_eq!(seat.leaves(), Some(true));
        assert!(seat.stay() && !seat.is_leaving());
        seat.note_user(9, true);
        let occupant = seat.occupant(3, seat.began.elapsed_us());
        assert!((occupant.group, occupant.is_known, occupant.is_admin) == (9, true, true));
    }
}
