//! Reads the body of a request, as a whole or as it comes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use document::multipart::Event;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use serde_json::Value;

use super::Request;
use crate::errors::ApiError;
use crate::load::SHORT_BODY_BYTES_MAX;
use crate::request::body::{BodyClass, Bounds, Pace, Source};
use crate::request::long_text;
use crate::request::room::Parsed;
use crate::shares::Sharer;

/// After an error, this much of the body is read and discarded so that the connection can continue.
const DRAIN_BYTES_MAX: u64 = 1 << 20;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);
/// Most bytes to read and discard when there was no memory for the body, which is not the client's
/// fault: many clients read no response before they have sent everything.
const UNTAKEN_BYTES_MAX: u64 = 1 << 30;
const UNTAKEN_TIME_MAX: Duration = Duration::from_secs(60);

impl Request {
    /// The whole body, inflated.
    ///
    /// # Errors
    /// 413 that names the limit of the route's class or the memory of one user, 400 when the body ends early or is not gzip, 408 when it comes too slowly, 503
    /// when there is no memory for it, or when the client of an HTTP/2 connection takes no responses.
    pub async fn bytes(&mut self) -> Result<Bytes, ApiError> {
        self.bytes_of(self.row.body, Parsed::Values).await
    }

    /// As [`Request::bytes`], of a body whose JSON values take no memory of their own: documents,
    /// and what functions are called with.
    pub async fn text(&mut self) -> Result<Bytes, ApiError> {
        self.bytes_of(self.row.body, Parsed::Documents).await
    }

    /// As [`Request::bytes`], within the bounds of another class than the route's.
    pub async fn bytes_of(&mut self, class: BodyClass, parsed: Parsed) -> Result<Bytes, ApiError> {
        let bounds = Bounds::of(class, &self.settings);
        if let Source::Memory(body) = &self.body {
            if body.len() as u64 > bounds.bytes_max {
                return Err(bounds.too_large());
            }
            return Ok(body.clone());
        }
        let gzip = self.content_encoding()?;
        let declared = self
            .header(&CONTENT_LENGTH)
            .and_then(|l| l.parse::<u64>().ok());
        if declared.is_some_and(|l| l > bounds.bytes_max) {
            return Err(bounds.too_large());
        }
        let (started, pace, sharer) = (Instant::now(), self.pace(), self.sharer());
        let Source::Client(body) = &mut self.body else {
            return Ok(Bytes::new());
        };
        // A client that sends the body late would have its other requests wait, or be forgotten.
        let has_begun = self.begun.take().is_some();
        let mut room = self.bodies.body(sharer, class);
        let read = async {
            if let Some(length) = declared {
                room.announce(length).await?;
            }
            let read = match gzip {
                false => body.read(&bounds, pace, &mut room).await?,
                true => body.inflate(&bounds, pace, &mut room).await?,
            };
            room.work_on(&read, parsed).await?;
            Ok(read)
        };
        let read: Result<Bytes, ApiError> = read.await;
        self.is_untaken = read.as_ref().is_err_and(|e| e.status == 503);
        self.room = Some(room);
        self.body_us = started.elapsed().as_micros() as u64;
        self.body_bytes += read.as_ref().map_or(0, |read| read.len() as u64);
        // The rest of a refused body is for `drain`.
        if read.is_ok() {
            self.body = Source::Taken;
            if has_begun {
                self.begun = self.answers.begin().await?;
            }
        }
        read
    }

    /// Keeps a body that was read for the handler, which reads it again.
    pub fn put_back(&mut self, body: Bytes) {
        self.body = Source::Memory(body);
    }

    /// Whose share of the memory for bodies it takes.
    fn sharer(&self) -> Sharer {
        Sharer::of(&self.user, self.peer)
    }

    fn pace(&self) -> Pace {
        Pace {
            silence_max: self.silence_max,
            bytes_per_second_min: self.settings.limits.min_body_rate,
        }
    }

    /// The next bytes of the body as they come; `None` at its end.
    ///
    /// # Errors
    /// 400 when the body ends early, 408 when it comes too slowly, 503 when there is no memory for it.
    pub async fn next_bytes(&mut self) -> Result<Option<Bytes>, ApiError> {
        if self.room.is_none() && matches!(self.body, Source::Client(_)) {
            let length = self.header(&CONTENT_LENGTH).and_then(|l| l.parse().ok());
            let room = self.bodies.stream(self.sharer(), length).await;
            self.is_untaken = room.is_err();
            self.room = Some(room?);
        }
        let pace = self.pace();
        match &mut self.body {
            Source::Taken => Ok(None),
            Source::Memory(_) => {
                let Source::Memory(bytes) = std::mem::replace(&mut self.body, Source::Taken) else {
                    return Ok(None);
                };
                Ok((!bytes.is_empty()).then_some(bytes))
            }
            Source::Client(body) => {
                let next = body.next(pace).await?;
                self.body_bytes += next.as_ref().map_or(0, |bytes| bytes.len() as u64);
                Ok(next)
            }
        }
    }

    /// Takes room for a document's text that is read by [`Request::next_bytes`], `length` so far
    /// and the bytes of this event; at the end of its part it is about to be processed.
    ///
    /// # Errors
    /// 413 when there can never be room for it, 503 when too little was freed in time.
    pub async fn make_room_for_text(&mut self, length: u64, event: &Event) -> Result<(), ApiError> {
        let new = || {
            self.bodies
                .body(Sharer::of(&self.user, self.peer), BodyClass::Document)
        };
        let room = self.text_room.get_or_insert_with(new);
        let done = match event {
            Event::Data(bytes) => room.cover(length + bytes.len() as u64).await,
            Event::PartEnd => room.work_on_text(length).await,
            Event::Part(_) | Event::End => Ok(()),
        };
        self.is_untaken = done.as_ref().is_err_and(|e| e.status == 503);
        done
    }

    fn content_encoding(&self) -> Result<bool, ApiError> {
        match self.header(&CONTENT_ENCODING) {
            None | Some("identity" | "") => Ok(false),
            Some("gzip") => Ok(true),
            Some(other) => Err(ApiError::bad_content_type(format!(
                "{other} is not a supported content encoding."
            ))),
        }
    }

    /// The body as JSON of any kind.
    pub async fn json(&mut self) -> Result<Value, ApiError> {
        let bytes = self.required_bytes().await?;
        self.parsed(&bytes).await
    }

    /// A body of the route that was read already, as JSON.
    pub async fn parsed(&mut self, bytes: &Bytes) -> Result<Value, ApiError> {
        let bounds = Bounds::of(self.row.body, &self.settings);
        if bytes.len() <= SHORT_BODY_BYTES_MAX {
            return bounds.json(bytes);
        }
        let (bytes, length) = (bytes.clone(), bytes.len());
        let gives_way = long_text::gives_way(length);
        self.process(length, gives_way, move || bounds.json(&bytes))
            .await?
    }

    /// Does work that takes as long as a text of `bytes` bytes is: for a long one, or one that
    /// `gives_way`, another thread does it. The room of the body is taken until then, also when the
    /// client goes, which does not end the work.
    ///
    /// # Errors
    /// 500 when `work` panics.
    pub async fn process<T: Send + 'static>(
        &mut self,
        bytes: usize,
        gives_way: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let rooms = (self.room.take(), self.text_room.take());
        let work = move || (work(), rooms);
        let (done, rooms) = long_text::process(&self.answers, bytes, gives_way, work).await?;
        (self.room, self.text_room) = rooms;
        Ok(done)
    }

    /// Frees the values of a body: of a long one on a thread that gives way.
    pub fn free<T: Send + 'static>(&self, values: T) {
        if self.body_bytes > SHORT_BODY_BYTES_MAX as u64 {
            // The result is not awaited: then the work is dropped in its turn, and the values with it.
            drop(self.answers.start_apart(move || drop(values)));
        }
    }

    /// The body as a JSON object.
    pub async fn json_object(&mut self) -> Result<serde_json::Map<String, Value>, ApiError> {
        match self.json().await? {
            Value::Object(o) => Ok(o),
            other => {
                self.free(other);
                Err(ApiError::bad_request("Request body must be a JSON object"))
            }
        }
    }

    /// As [`Request::text`], of a request that must have a body.
    pub async fn required_text(&mut self) -> Result<Bytes, ApiError> {
        self.require_body()?;
        self.text().await
    }

    /// As [`Request::bytes`], of a request that must have a body.
    pub async fn required_bytes(&mut self) -> Result<Bytes, ApiError> {
        self.require_body()?;
        self.bytes().await
    }

    /// Refuses a request that announces no body, not even an empty one.
    pub fn require_body(&self) -> Result<(), ApiError> {
        let announced = self.headers.contains_key(CONTENT_LENGTH)
            || self.headers.contains_key(TRANSFER_ENCODING);
        if !announced && matches!(&self.body, Source::Client(body) if body.is_empty()) {
            return Err(ApiError::bad_request("Missing request body"));
        }
        Ok(())
    }

    /// Sets a body to be read instead of the client's, which must have been read.
    pub fn set_body(&mut self, body: Bytes) {
        self.headers.remove(CONTENT_ENCODING);
        self.headers.remove(TRANSFER_ENCODING);
        self.headers.insert(CONTENT_LENGTH, body.len().into());
        self.body = Source::Memory(body);
    }

    /// Sets a body that a function made: it takes room as one that a client sends, instead of the room of the
    /// client's.
    ///
    /// # Errors
    /// 413 when there can never be memory for it, 503 when there was too little in time.
    pub async fn set_made_body(&mut self, body: Bytes) -> Result<(), ApiError> {
        let (made, length) = (body.clone(), body.len() as u64);
        self.set_body(body);
        self.room = None;
        // It is in memory while it waits for room.
        let _held = self.answers.settle_long(made.len()).await?;
        let mut room = self.bodies.body(self.sharer(), self.row.body);
        room.announce(length).await?;
        room.work_on(&made, Parsed::Values).await?;
        self.room = Some(room);
        Ok(())
    }

    /// Reads the rest of the body, up to a bound, so that an early response does not cost the
    /// connection. Returns whether that was all of it.
    pub async fn drain(&mut self) -> bool {
        let Source::Client(body) = std::mem::replace(&mut self.body, Source::Taken) else {
            return true;
        };
        // This client sends a body only after 100 Continue, which an early response does not send.
        let waits = self.header(&EXPECT);
        if !self.is_untaken && waits.is_some_and(|e| e.eq_ignore_ascii_case("100-continue")) {
            return true;
        }
        let (bytes_max, time_max) = match self.is_untaken {
            true => (UNTAKEN_BYTES_MAX, UNTAKEN_TIME_MAX),
            false => (DRAIN_BYTES_MAX, DRAIN_TIME_MAX),
        };
        let done = body.drain(bytes_max);
        tokio::time::timeout(time_max, done).await.unwrap_or(false)
    }
}
