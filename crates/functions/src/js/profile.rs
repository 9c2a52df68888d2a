//! Profiles of worker processes: each samples itself, and sends its samples to the server.
//!
//! They are requested on a socket of their own, which a thread of the worker serves: so a function
//! that runs for long, or forever, does not block them.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use profiler::{Samples, Session};

use super::wire::{Frame, Kind, Received};

/// Time limit for a worker's samples.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time limit for the samples of one that is about to be killed.
const LAST_PATIENCE: Duration = Duration::from_millis(200);
/// Maximum number of workers that ended during a profile whose samples are kept.
const ENDED_MAX: usize = 1000;

/// Current sampling rate per second, 0 for none.
static HZ: AtomicU32 = AtomicU32::new(0);
/// All workers of this process.
static WORKERS: Mutex<Vec<Weak<Control>>> = Mutex::new(vec![]);
/// Samples of workers that ended while they were profiled.
static ENDED: Mutex<Vec<Samples>> = Mutex::new(vec![]);

/// The server's end of a worker's second socket.
pub(super) struct Control(Mutex<UnixStream>);

impl Control {
    /// Registers a new worker for profiles.
    pub fn register(socket: UnixStream) -> Arc<Control> {
        // Fails only for a time of zero.
        let _ = socket.set_write_timeout(Some(LAST_PATIENCE));
        let control = Arc::new(Control(Mutex::new(socket)));
        let mut workers = WORKERS.lock();
        workers.retain(|worker| worker.strong_count() > 0);
        workers.push(Arc::downgrade(&control));
        // With the list locked: the end of the profile is sent to those in the list.
        let hz = HZ.load(SeqCst);
        if hz > 0 {
            control.start(hz);
        }
        control
    }

    /// A second request has no effect. A worker that cannot be reached is about to end.
    fn start(&self, hz: u32) {
        let frame = Frame::new(Kind::Profile).number(hz.into());
        let _ = frame.send(&mut *self.0.lock());
    }

    /// Requests the samples; returns the number of the request.
    fn stop(&self) -> io::Result<u64> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, SeqCst);
        let frame = Frame::new(Kind::Samples).number(number);
        frame.send(&mut *self.0.lock())?;
        Ok(number)
    }

    /// Waits for the answer to a request. An older one is late for its own.
    fn samples(&self, number: u64, patience: Duration) -> Option<Samples> {
        let mut socket = self.0.lock();
        socket.set_read_timeout(Some(patience)).ok()?;
        loop {
            let mut frame = Received::read(&mut *socket).ok()??;
            if frame.kind == Kind::Samples && frame.number().ok()? == number {
                return Samples::from_bytes(frame.bytes().ok()?);
            }
        }
    }

    /// Takes the samples, if any, of a worker that is about to be killed.
    pub fn end(&self) {
        if HZ.load(SeqCst) == 0 {
            return;
        }
        let samples = self
            .stop()
            .ok()
            .and_then(|n| self.samples(n, LAST_PATIENCE));
        if let Some(samples) = samples {
            let mut ended = ENDED.lock();
            if ended.len() < ENDED_MAX {
                ended.push(samples);
            }
        }
    }
}

/// A profile of all workers, including those that are started meanwhile. One at a time; it ends
/// when it is dropped.
#[derive(Debug)]
pub struct WorkersProfile(());

impl WorkersProfile {
    /// Starts, with this number of samples per second of processor time.
    pub fn start(hz: u32) -> WorkersProfile {
        ENDED.lock().clear();
        for worker in workers_at(hz.max(1)) {
            worker.start(hz.max(1));
        }
        WorkersProfile(())
    }

    /// Ends it, and returns the samples of each worker. One that does not answer in time is listed
    /// as left out.
    pub fn finish(self) -> Vec<Samples> {
        let workers = end();
        let samples = |(worker, number): &(Arc<Control>, u64)| {
            let samples = worker.samples(*number, PATIENCE);
            samples.unwrap_or_else(Samples::left_out)
        };
        let samples: Vec<Samples> = workers.iter().map(samples).collect();
        let mut all = std::mem::take(&mut *ENDED.lock());
        all.extend(samples);
        std::mem::forget(self);
        all
    }
}

impl Drop for WorkersProfile {
    fn drop(&mut self) {
        // Unread data would fill the sockets.
        for (worker, number) in end() {
            worker.samples(number, PATIENCE);
        }
    }
}

/// Sets the sampling rate; returns all workers.
fn workers_at(hz: u32) -> Vec<Arc<Control>> {
    let workers = WORKERS.lock();
    HZ.store(hz, SeqCst);
    workers.iter().filter_map(Weak::upgrade).collect()
}

/// Requests the end of the profile from all workers; returns those reached, and the numbers of the
/// requests.
fn end() -> Vec<(Arc<Control>, u64)> {
    let told = |worker: Arc<Control>| worker.stop().ok().map(|number| (worker, number));
    workers_at(0).into_iter().filter_map(told).collect()
}

/// The worker's side: its current profile.
#[derive(Default)]
pub(super) struct Profiled(Option<Session>);

impl Profiled {
    /// Returns the time to its next tick.
    pub fn wait(&self) -> Option<Duration> {
        self.0.as_ref().map(|_| profiler::TICK)
    }

    pub fn tick(&mut self) {
        if let Some(session) = &mut self.0 {
            session.tick();
        }
    }

    /// Handles a request of the server. An error means that the server is gone.
    pub fn serve(&mut self, socket: &mut (impl Read + Write)) -> io::Result<()> {
        let frame = Received::read(socket)?;
        let mut frame = frame.ok_or(io::ErrorKind::UnexpectedEof)?;
        match frame.kind {
            Kind::Profile if self.0.is_none() => {
                let hz = frame.number()? as u32;
                // Where threads cannot be sampled, there are no samples.
                self.0 = Session::start(hz).ok();
                Ok(())
            }
            Kind::Profile => Ok(()),
            Kind::Samples => {
                let number = frame.number()?;
                let samples = self.0.take().map(Session::finish).unwrap_or_default();
                let frame = Frame::new(Kind::Samples).number(number);
                let frame = frame.bytes(&samples.to_bytes());
                frame.send(socket)
            }
            _ => Err(io::Error::other("not a request")),
        }
    }
}
