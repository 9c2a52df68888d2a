//! `/_settee/profile`: profiles of the server.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use functions::js::WorkersProfile;
use functions::query_server;
use hyper::header::{CACHE_CONTROL, HeaderName};
use node::Query;
use parking_lot::Mutex;
use profiler::{Graph, HZ_MAX, Profile, Session, Symbols, TICK, Unit};
use routes::{CLASSES, Class};
use telemetry::State;
use tokio::sync::oneshot;

use crate::accounting::route_label::{FRAME_PREFIX, class_named, frame_of};
use crate::accounting::waits::Waits;
use crate::app::App;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;

/// The longest profile, in seconds.
const SECONDS_MAX: u64 = 300;
const SECONDS: u64 = 10;
/// Samples per second; not a divisor of the frequencies at which a server works periodically.
const HZ: u32 = 99;
/// The header with the quality of a profile.
const TOLD: HeaderName = HeaderName::from_static("x-settee-profile");
/// The header with the samples of each route, the largest number first.
const ROUTES: HeaderName = HeaderName::from_static("x-settee-profile-routes");

/// The subject of a profile.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    /// Processor time.
    Cpu,
    /// Requests' time by the clock.
    Waits,
}

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Svg,
    Folded,
    Pprof,
}

/// Parameters of a profile.
#[derive(Clone, Copy)]
struct Wish {
    of: Of,
    format: Format,
    time: Duration,
    hz: u32,
    /// Only requests of this route.
    route: Option<Class>,
    /// Frames of the runtime are shown one by one.
    has_all_frames: bool,
}

impl Wish {
    fn read(query: &Query) -> Result<Wish, ApiError> {
        let number = |name: &str, without: u64, most: u64| match query.get(name).map(str::parse) {
            None => Ok(without),
            Some(Ok(n)) if (1..=most).contains(&n) => Ok(n),
            Some(_) => Err(ApiError::bad_request(format!(
                "`{name}` is a number from 1 to {most}"
            ))),
        };
        let of = match query.get("of") {
            None | Some("cpu") => Of::Cpu,
            Some("waits") => Of::Waits,
            Some(_) => return Err(ApiError::bad_request("`of` is cpu or waits")),
        };
        let format = match query.get("format") {
            None | Some("svg") => Format::Svg,
            Some("folded") => Format::Folded,
            Some("pprof") => Format::Pprof,
            Some(_) => {
                return Err(ApiError::bad_request("`format` is svg, folded or pprof"));
            }
        };
        let has_all_frames = match query.get("frames") {
            None | Some("own") => false,
            Some("all") => true,
            Some(_) => return Err(ApiError::bad_request("`frames` is own or all")),
        };
        let route = query.get("route").map(|name| {
            class_named(name).ok_or_else(|| {
                let names: Vec<&str> = CLASSES.iter().map(|class| class.name()).collect();
                ApiError::bad_request(format!("`route` is one of {}", names.join(", ")))
            })
        });
        Ok(Wish {
            of,
            format,
            route: route.transpose()?,
            has_all_frames,
            time: Duration::from_secs(number("seconds", SECONDS, SECONDS_MAX)?),
            hz: number("hz", HZ.into(), HZ_MAX.into())? as u32,
        })
    }
}

/// Answers a server admin, at the end of the profile's time.
pub async fn route(app: &App, req: &Request) -> Result<Reply, ApiError> {
    let wish = Wish::read(&req.query)?;
    if req.method == "HEAD" {
        return Ok(Reply::empty(200));
    }
    let app = app.shared()?;
    // Both are dropped with this future, when the client goes: the profile ends with them.
    let (gone, is_gone) = channel::<()>();
    let (sender, made) = oneshot::channel();
    let thread = std::thread::Builder::new().name("profile".to_owned());
    let make = move || {
        let _ = sender.send(make(&app, wish, &is_gone));
    };
    thread.spawn(make).map_err(ApiError::worker_failed)?;
    let reply = made.await.map_err(ApiError::worker_failed)?;
    drop(gone);
    reply
}

fn make(app: &Arc<App>, wish: Wish, is_gone: &Receiver<()>) -> Result<Reply, ApiError> {
    let began = Instant::now();
    let profile = match wish.of {
        Of::Cpu => of_cpu(wish, is_gone)?,
        Of::Waits => of_waits(wish, is_gone)?,
    };
    let text = |body: Vec<u8>, kind| Reply::text(200, kind, body);
    let reply = match wish.format {
        Format::Folded => text(profile.folded().into_bytes(), "text/plain; charset=utf-8"),
        Format::Pprof => {
            let packed = profile.pprof(began.elapsed());
            let packed = packed.map_err(ApiError::worker_failed)?;
            text(packed, "application/octet-stream")
        }
        Format::Svg => {
            let svg = profile.svg(&graph(app, wish, &profile)).map_err(failed)?;
            text(svg.into_bytes(), "image/svg+xml")
        }
    };
    let told = format!(
        "total={} unknown={} lost={} threads_left_out={}",
        profile.total(),
        profile.unknown(),
        profile.lost(),
        profile.threads_left_out(),
    );
    let routes = profile.by_prefix(FRAME_PREFIX).into_iter();
    let routes: Vec<String> = routes
        .map(|(route, samples)| format!("{route}={samples}"))
        .collect();
    let reply = reply.header(TOLD, &told).header(ROUTES, &routes.join(" "));
    Ok(reply.header(CACHE_CONTROL, "no-store"))
}

fn graph(app: &App, wish: Wish, profile: &Profile) -> Graph {
    let at = replicator::iso8601(SystemTime::now());
    let (title, of) = match wish.of {
        Of::Cpu => (
            "Processor time",
            format!("{} samples at {} Hz", profile.total(), wish.hz),
        ),
        Of::Waits => ("Requests by the clock", "microseconds".to_owned()),
    };
    let route = wish.route.map_or_else(String::new, |route| {
        format!(", requests of the route {}", route.name())
    });
    Graph {
        title: format!("{title} of {}{route}", app.node.name),
        subtitle: format!("{of}, {} s until {at}", wish.time.as_secs()),
    }
}

fn failed(e: profiler::Error) -> ApiError {
    let status = match &e {
        profiler::Error::Busy => return busy(),
        // Nothing happened meanwhile.
        profiler::Error::Empty => 404,
        _ => 500,
    };
    let error = if status == 404 {
        "not_found"
    } else {
        "profile_failed"
    };
    ApiError::new(status, error, e.to_string())
}

fn busy() -> ApiError {
    ApiError::new(409, "conflict", "another profile is being recorded")
}

/// Waits until the time is over or the client has gone, calling `tick` meanwhile.
fn wait(wish: Wish, is_gone: &Receiver<()>, mut tick: impl FnMut()) -> Result<(), ApiError> {
    let ends = Instant::now() + wish.time;
    loop {
        let left = ends.saturating_duration_since(Instant::now());
        match is_gone.recv_timeout(left.min(TICK)) {
            Err(RecvTimeoutError::Timeout) if left.is_zero() => return Ok(()),
            Err(RecvTimeoutError::Timeout) => tick(),
            // This error is never read.
            _ => return Err(ApiError::worker_failed("the client has gone")),
        }
    }
}

/// One at a time, until the last worker has answered.
static CPU: Mutex<()> = Mutex::new(());

fn of_cpu(wish: Wish, is_gone: &Receiver<()>) -> Result<Profile, ApiError> {
    let Some(_one) = CPU.try_lock() else {
        return Err(busy());
    };
    let mut session = Session::start(wish.hz).map_err(failed)?;
    let workers = WorkersProfile::start(wish.hz);
    let servers: HashMap<_, _> = of_query_servers().collect();
    wait(wish, is_gone, || session.tick())?;
    let samples = session.finish();
    let workers = workers.finish();
    let mut profile = Profile::new(Unit::Samples { hz: wish.hz });
    let all = workers.iter().chain([&samples]);
    let mut symbols = Symbols::of(all.clone());
    if !wish.has_all_frames {
        symbols = symbols.fold_runtime();
    }
    for samples in all {
        symbols.add(samples, &[], &mut profile);
    }
    for ((process, language), time) in of_query_servers() {
        // One that is new has all its time.
        let before = servers.get(&(process, language.clone()));
        let spent = time.saturating_sub(before.copied().unwrap_or_default());
        let samples = spent.as_secs_f64() * f64::from(wish.hz);
        let frame = format!("{language} ({process})");
        profile.add(&["query servers", &frame], samples.round() as u64);
    }
    Ok(match wish.route {
        Some(route) => profile.below(&frame_of(route)),
        None => profile,
    })
}

/// Processor time of query servers, by process and language.
fn of_query_servers() -> impl Iterator<Item = ((u32, Arc<str>), Duration)> {
    let all = query_server::cpu_times().into_iter();
    all.map(|(process, language, time)| ((process, language), time))
}

fn of_waits(wish: Wish, is_gone: &Receiver<()>) -> Result<Profile, ApiError> {
    let waits = Waits::start().ok_or_else(busy)?;
    let before = states();
    wait(wish, is_gone, || {})?;
    let mut profile = Profile::new(Unit::Microseconds);
    for ((route, phase), us) in waits.spent() {
        if wish.route.is_none_or(|only| only.name() == route) {
            profile.add(&["requests", route, phase], us);
        }
    }
    if wish.route.is_some() {
        // Threads work for all routes.
        return Ok(profile);
    }
    for ((thread, state), time) in states() {
        let spent = time.saturating_sub(
            before
                .get(&(thread.clone(), state))
                .copied()
                .unwrap_or_default(),
        );
        profile.add(&["threads", &thread, state], spent.as_micros() as u64);
    }
    Ok(profile)
}

/// How long threads were in each state but at rest, by their names.
fn states() -> HashMap<(String, &'static str), Duration> {
    let mut all = HashMap::new();
    for of in telemetry::threads() {
        for (state, time) in of.spent.iter().filter(|(s, _)| *s != State::Idle) {
            all.insert((of.name.clone(), state.name()), *time);
        }
    }
    all
}
