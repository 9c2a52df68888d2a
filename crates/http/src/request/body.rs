//! The bodies of requests: limits on their size, on the time that they take, and on their
//! decompressed size.
//!
//! The route table names the [`BodyClass`] of a route; the bounds of each are settings. A gzipped
//! body is inflated portion by portion as it comes, so that a decompression bomb costs little more
//! than the bytes sent, and is refused where it passes a bound.

use std::io::Write;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use config::Settings;
use flate2::write::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};

use super::room::Room;
use crate::errors::ApiError;

/// Largest body of a login: all clients may log in, and it is short.
const LOGIN_BYTES_MAX: u64 = 64 << 10;
/// JSON values in a small body: each takes up to a hundred bytes where it is taken apart.
const SMALL_VALUES_MAX: u64 = 1 << 18;
/// Most values in a document: mostly ids of documents of a replication.
const DOCUMENT_VALUES_MAX: u64 = 1 << 20;
/// A body may inflate to 1 MiB whatever its ratio is: short texts of few characters compress well.
const INFLATED_FREE: u64 = 1 << 20;
/// A body's pace counts only after 60 s.
const PACE_GRACE: Duration = Duration::from_secs(60);
/// A portion longer than this is inflated on a thread that may block, in bytes.
const INFLATE_HERE_MAX: usize = 4 << 10;
/// Short portions are inflated there too if far fewer bytes came out than in: less than half as
/// many, apart from this number.
const SPARSE_FREE: u64 = 64 << 10;
/// While others wait for memory, a body has to come at this pace, in bytes a second, after a grace.
const WANTED_PACE: u64 = 64 << 10;
const WANTED_GRACE: Duration = Duration::from_secs(10);
/// Interval at which other waiting requests are noticed.
const LOOK_EVERY: Duration = Duration::from_secs(2);

pub use routes::BodyClass;

/// How large one body may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The name of `bytes_max`, for the refusal.
    pub limit: &'static str,
    /// Bytes, as they come and inflated.
    pub bytes_max: u64,
    /// Bytes that a gzipped body may inflate to,
    pub inflated_max: u64,
    /// and how many for each that was sent, beyond the first [`INFLATED_FREE`].
    pub ratio_max: u64,
    /// JSON values that are taken apart one by one.
    pub values_max: u64,
}

impl Bounds {
    /// The bounds of a class, by the settings.
    pub fn of(class: BodyClass, settings: &Settings) -> Bounds {
        let limits = &settings.limits;
        let (limit, bytes_max, values_max) = match class {
            BodyClass::Login => ("the size of a login", LOGIN_BYTES_MAX, SMALL_VALUES_MAX),
            BodyClass::Small => (
                "max_small_request_size",
                limits.max_small_request_size,
                SMALL_VALUES_MAX,
            ),
            BodyClass::Document => (
                "max_document_size",
                settings.couchdb.max_document_size,
                DOCUMENT_VALUES_MAX,
            ),
            BodyClass::Many => (
                "max_http_request_size",
                settings.chttpd.max_http_request_size,
                limits.max_json_values,
            ),
        };
        Bounds {
            limit,
            bytes_max,
            inflated_max: limits.max_inflated_request_size,
            ratio_max: limits.max_inflation_ratio,
            values_max: values_max.min(limits.max_json_values),
        }
    }

    pub fn too_large(&self) -> ApiError {
        ApiError::too_large(self.limit, self.bytes_max)
    }

    /// Reads JSON whose values all take memory of their own.
    ///
    /// # Errors
    /// 413 when there are too many values, 400 when it is not JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, ApiError> {
        // Each value has one of these before it. Those within strings count too: texts of separators alone are rare.
        let begins = |b: &&u8| matches!(**b, b',' | b'[' | b'{' | b':');
        if bytes.len() as u64 > self.values_max
            && bytes.iter().filter(begins).count() as u64 > self.values_max
        {
            let what = "the number of JSON values in such a request";
            return Err(ApiError::too_large(what, self.values_max));
        }
        serde_json::from_slice(bytes).map_err(|_| ApiError::invalid_json())
    }
}

/// How fast a body has to come.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long nothing of it may come.
    pub silence_max: Duration,
    /// 0 for any.
    pub bytes_per_second_min: u64,
}

impl Pace {
    pub const ANY: Pace = Pace {
        silence_max: Duration::MAX,
        bytes_per_second_min: 0,
    };

    /// Longest wait for the next bytes, after `came` bytes and a total wait of `waited`.
    fn patience(&self, came: u64, waited: Duration) -> Duration {
        let seconds = came.checked_div(self.bytes_per_second_min);
        let in_all = seconds.map(|s| PACE_GRACE.saturating_add(Duration::from_secs(s)));
        let left = in_all.map_or(Duration::MAX, |all| all.saturating_sub(waited));
        left.min(self.silence_max)
    }
}

/// Where the body is.
pub enum Source {
    /// Still to be read.
    Client(Stream),
    /// Read already, or made by a rewrite function.
    Memory(Bytes),
    Taken,
}

/// A body that comes from a client.
pub struct Stream {
    incoming: Incoming,
    came: u64,
    waited: Duration,
}

impl Stream {
    pub fn new(incoming: Incoming) -> Stream {
        Stream {
            incoming,
            came: 0,
            waited: Duration::ZERO,
        }
    }

    /// Whether it is known to hold nothing.
    pub fn is_empty(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// The next bytes, never empty; `None` at the end.
    ///
    /// # Errors
    /// 400 when the body ends early, 408 when it comes too slowly.
    pub async fn next(&mut self, pace: Pace) -> Result<Option<Bytes>, ApiError> {
        loop {
            let patience = pace.patience(self.came, self.waited);
            let began = tokio::time::Instant::now();
            let frame = tokio::time::timeout(patience, self.incoming.frame()).await;
            self.waited += began.elapsed();
            let Some(frame) = frame.map_err(|_| ApiError::client_too_slow())? else {
                return Ok(None);
            };
            let frame =
                frame.map_err(|_| ApiError::bad_request("the request's body ended early"))?;
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                self.came += data.len() as u64;
                return Ok(Some(data));
            }
        }
    }

    /// The next bytes of a body that has room: it hurries while others wait for that.
    async fn next_in(&mut self, room: &Room, pace: Pace) -> Result<Option<Bytes>, ApiError> {
        let began = tokio::time::Instant::now();
        loop {
            let silence = pace.silence_max.saturating_sub(began.elapsed());
            let mut patience = pace.patience(self.came, self.waited).min(silence);
            if room.is_wanted() {
                let due = Duration::from_secs(self.came / WANTED_PACE) + WANTED_GRACE;
                patience = patience.min(due.saturating_sub(self.waited));
            }
            let look = Pace {
                silence_max: patience.min(LOOK_EVERY),
                bytes_per_second_min: 0,
            };
            match self.next(look).await {
                Err(e) if e.status == 408 && patience > LOOK_EVERY => {}
                came => return came,
            }
        }
    }

    /// All of it as it comes.
    ///
    /// # Errors
    /// 413, 400, 408 and 503.
    pub async fn read(
        &mut self,
        bounds: &Bounds,
        pace: Pace,
        room: &mut Room,
    ) -> Result<Bytes, ApiError> {
        let mut first: Option<Bytes> = None;
        let mut rest = BytesMut::new();
        while let Some(data) = self.next_in(room, pace).await? {
            if self.came > bounds.bytes_max {
                return Err(bounds.too_large());
            }
            room.cover(self.came).await?;
            match first.take() {
                None if rest.is_empty() => first = Some(data),
                None => rest.extend_from_slice(&data),
                Some(f) => {
                    rest.reserve(f.len() + data.len());
                    rest.extend_from_slice(&f);
                    rest.extend_from_slice(&data);
                }
            }
        }
        Ok(first.unwrap_or_else(|| rest.freeze()))
    }

    /// All of it, inflated.
    ///
    /// # Errors
    /// 413 that names the bound, 400 when it is not gzip, 408 and 503.
    pub async fn inflate(
        &mut self,
        bounds: &Bounds,
        pace: Pace,
        room: &mut Room,
    ) -> Result<Bytes, ApiError> {
        room.inflate().await?;
        let mut inflating = Inflating::new(*bounds);
        while let Some(mut data) = self.next_in(room, pace).await? {
            inflating.comes(data.len())?;
            // As much as there is room for at a time, since it may swell a lot.
            while !data.is_empty() {
                let (covered, came) = (room.covered(), data.len());
                if came <= INFLATE_HERE_MAX && !inflating.is_sparse() {
                    inflating.push(&mut data, covered)?;
                } else {
                    let turn = room.turn_to_inflate().await?;
                    let pushed = tokio::task::spawn_blocking(move || {
                        let _turn = turn;
                        inflating.push(&mut data, covered)?;
                        Ok::<_, ApiError>((inflating, data))
                    });
                    (inflating, data) = pushed.await.map_err(ApiError::worker_failed)??;
                }
                room.cover(inflating.len() as u64).await?;
            }
        }
        inflating.finish()
    }

    /// Reads and discards the rest, at most `max` bytes more. Returns whether that was all.
    pub async fn drain(mut self, max: u64) -> bool {
        let end = self.came.saturating_add(max);
        while self.came <= end {
            match self.next(Pace::ANY).await {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
        false
    }
}

/// Takes gzip in portions.
struct Inflating {
    decoder: MultiGzDecoder<Swelling>,
}

/// Output of decompression so far.
struct Swelling {
    out: Vec<u8>,
    /// Bytes that went in.
    came: u64,
    bounds: Bounds,
    /// The bound that it passed.
    over: Option<ApiError>,
}

impl Swelling {
    fn check(&self, len: u64) -> Result<(), ApiError> {
        let bounds = &self.bounds;
        if len > bounds.bytes_max {
            return Err(bounds.too_large());
        }
        if len > bounds.inflated_max {
            let limit = "max_inflated_request_size";
            return Err(ApiError::too_large(limit, bounds.inflated_max));
        }
        let by_ratio = INFLATED_FREE.saturating_add(self.came.saturating_mul(bounds.ratio_max));
        if len > by_ratio {
            return Err(ApiError::too_large("max_inflation_ratio", bounds.ratio_max));
        }
        Ok(())
    }
}

impl Write for Swelling {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Err(over) = self.check((self.out.len() + bytes.len()) as u64) {
            self.over = Some(over);
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Inflating {
    fn new(bounds: Bounds) -> Inflating {
        Inflating {
            decoder: MultiGzDecoder::new(Swelling {
                out: vec![],
                came: 0,
                bounds,
                over: None,
            }),
        }
    }

    /// Bytes that came out so far.
    fn len(&self) -> usize {
        self.decoder.get_ref().out.len()
    }

    /// Returns whether far fewer bytes came out than in. Empty gzip members do that: each has
    /// 20 bytes, and decoding it takes as long as decoding kilobytes of text.
    fn is_sparse(&self) -> bool {
        let swelling = self.decoder.get_ref();
        swelling.came > SPARSE_FREE + 2 * swelling.out.len() as u64
    }

    /// Notes that these bytes are about to be pushed.
    fn comes(&mut self, bytes: usize) -> Result<(), ApiError> {
        let swelling = self.decoder.get_mut();
        swelling.came += bytes as u64;
        match swelling.came > swelling.bounds.bytes_max {
            true => Err(swelling.bounds.too_large()),
            false => Ok(()),
        }
    }

    /// Inflates the bytes, and takes them away, until more than `covered` came out: a step of the decoder at most, which is 32
    /// KiB.
    fn push(&mut self, bytes: &mut Bytes, covered: u64) -> Result<(), ApiError> {
        while !bytes.is_empty() {
            let pushed = self.decoder.write(bytes).and_then(|taken| match taken {
                0 => Err(std::io::ErrorKind::InvalidData.into()),
                taken => Ok(taken),
            });
            let taken = self.told(pushed)?;
            bytes.advance(taken);
            if self.len() as u64 > covered {
                break;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Bytes, ApiError> {
        if self.decoder.get_ref().came == 0 {
            return Err(not_gzip());
        }
        let finished = self.decoder.try_finish();
        self.told(finished)?;
        Ok(std::mem::take(&mut self.decoder.get_mut().out).into())
    }

    fn told<T>(&mut self, done: std::io::Result<T>) -> Result<T, ApiError> {
        done.map_err(|_| self.decoder.get_mut().over.take().unwrap_or_else(not_gzip))
    }
}

impl Drop for Inflating {
    fn drop(&mut self) {
        // The decoder writes its remaining output when it is dropped; it is not needed.
        self.decoder.get_mut().bounds.bytes_max = 0;
    }
}

fn not_gzip() -> ApiError {
    ApiError::bad_request("Request body is not properly gzipped.")
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        limit: "max_http_request_size",
        bytes_max: 64 << 20,
        inflated_max: 32 << 20,
        ratio_max: 200,
        values_max: 10,
    };

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(vec![], Compression::best());
        encoder.write_all(bytes).expect("into memory");
        encoder.finish().expect("into memory")
    }

    /// Decompresses in portions; returns the bytes, or the reason and the most that was held.
    fn inflated(raw: &[u8], portion: usize, bounds: Bounds) -> Result<Bytes, (u16, String, usize)> {
        let mut inflating = Inflating::new(bounds);
        for bytes in raw.chunks(portion) {
            let mut bytes = Bytes::copy_from_slice(bytes);
            let pushed = inflating.comes(bytes.len());
            let pushed = pushed.and_then(|()| inflating.push(&mut bytes, u64::MAX));
            let held = inflating.decoder.get_ref().out.len();
            pushed.map_err(|e| (e.status, e.reason.into_owned(), held))?;
        }
        inflating
            .finish()
            .map_err(|e| (e.status, e.reason.into_owned(), 0))
    }

    #[test]
    fn portions_of_any_length_make_the_whole() {
        let text: Vec<u8> = (0..50_000u32)
            .flat_map(|n| n.to_string().into_bytes())
            .collect();
        let raw = gzip(&text);
        for portion in [1, 7, 1000, raw.len()] {
            assert_eq!(inflated(&raw, portion, BOUNDS).as_deref(), Ok(&text[..]));
        }
        let twice = [raw.clone(), raw].concat();
        let all = inflated(&twice, 500, BOUNDS).map(|b| b.len());
        assert_eq!(all, Ok(2 * text.len()));
    }

    #[test]
    fn a_body_of_empty_members_is_sparse_and_others_are_not() {
        let is_sparse = |raw: &[u8]| {
            let mut inflating = Inflating::new(BOUNDS);
            let portions = raw.chunks(INFLATE_HERE_MAX).map(|portion| {
                inflating.comes(portion.len()).unwrap();
                let is_sparse = inflating.is_sparse();
                let mut portion = Bytes::copy_from_slice(portion);
                inflating.push(&mut portion, u64::MAX).unwrap();
                is_sparse
            });
            portions.filter(|is_sparse| *is_sparse).count()
        };
        assert!(is_sparse(&gzip(b"").repeat(10_000)) > 30);
        let text: String = (0..40_000).map(|n| format!("{n} ")).collect();
        assert_eq!(is_sparse(&gzip(text.as_bytes())), 0);
        let mut noise = vec![0; 300_000];
        getrandom::fill(&mut noise).unwrap();
        assert_eq!(is_sparse(&gzip(&noise)), 0);
    }

    #[test]
    fn no_more_is_inflated_than_there_is_room_for() {
        let raw = gzip(&vec![b' '; 900_000]);
        assert!(raw.len() < 2000, "{} bytes", raw.len());
        let mut inflating = Inflating::new(BOUNDS);
        let mut bytes = Bytes::from(raw);
        inflating.comes(bytes.len()).expect("within the bounds");
        let mut steps = 0;
        while !bytes.is_empty() {
            let before = inflating.len();
            inflating.push(&mut bytes, before as u64).expect("gzip");
            assert!(
                inflating.len() <= before + (64 << 10),
                "from {before} to {}",
                inflating.len()
            );
            steps += 1;
        }
        assert!(steps > 10, "{steps} steps");
        assert_eq!(inflating.finish().expect("gzip").len(), 900_000);
    }

    #[test]
    fn a_bomb_is_refused_where_it_passes_its_bound() {
        let raw = gzip(&vec![b' '; 40 << 20]);
        let (status, reason, held) = inflated(&raw, 1000, BOUNDS).unwrap_err();
        assert_eq!(
            (status, &*reason),
            (413, "the request exceeds max_inflation_ratio (200)")
        );
        assert!(held <= 2 << 20, "{held} bytes were held");
        let slack = Bounds {
            ratio_max: 2000,
            ..BOUNDS
        };
        let (status, reason, held) = inflated(&raw, 1000, slack).unwrap_err();
        assert_eq!(
            (status, &*reason),
            (
                413,
                "the request exceeds max_inflated_request_size (33554432)"
            )
        );
        assert!(held <= 32 << 20);
        let small = Bounds {
            limit: "max_small_request_size",
            bytes_max: 1 << 20,
            ..BOUNDS
        };
        let (_, reason, _) = inflated(&raw, 1000, small).unwrap_err();
        assert_eq!(
            reason,
            "the request exceeds max_small_request_size (1048576)"
        );
    }

    #[test]
    fn what_is_not_gzip_is_told() {
        let raw = gzip(b"text");
        let garbage = [raw.clone(), b"garbage".to_vec()].concat();
        for bad in [&b""[..], b"text", &raw[..raw.len() - 1], &garbage] {
            let e = inflated(bad, 3, BOUNDS).unwrap_err();
            assert_eq!((e.0, &*e.1), (400, "Request body is not properly gzipped."));
        }
    }

    #[test]
    fn values_are_counted_before_they_take_memory() {
        let json = |text: &str| BOUNDS.json::<serde_json::Value>(text.as_bytes());
        assert!(json("[1,2,3,4,5,6,7,8,9]").is_ok());
        assert!(json("\"a long text of one value\"").is_ok());
        let refused = json("[1,2,3,4,5,6,7,8,9,10,11]").unwrap_err();
        assert_eq!(refused.status, 413);
        assert_eq!(json("{").unwrap_err().status, 400);
    }

    #[test]
    fn a_body_that_trickles_runs_out_of_patience() {
        let pace = Pace {
            silence_max: Duration::from_secs(300),
            bytes_per_second_min: 100,
        };
        let secs = Duration::from_secs;
        assert_eq!(pace.patience(0, Duration::ZERO), secs(60));
        assert_eq!(pace.patience(0, secs(59)), secs(1));
        assert_eq!(pace.patience(1000, secs(59)), secs(11));
        assert_eq!(pace.patience(1000, secs(80)), Duration::ZERO);
        assert_eq!(pace.patience(1 << 30, secs(80)), secs(300));
        assert_eq!(Pace::ANY.patience(0, secs(1 << 20)), Duration::MAX);
    }
}
