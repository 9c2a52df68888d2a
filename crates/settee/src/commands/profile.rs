//! `settee profile`: a server's use of time, as a flame graph.

use command_line::{check_output, counted, server_url};
use std::fs;
use std::path::Path;
use std::time::Duration;

use profiler::{Graph, Growth, Profile, Unit};
use reqwest::Method;
use serde_json::Value;

use super::server::Server;
use crate::Failure;
use crate::cli::{ProfileFormat, ProfileOptions};

/// Longest time from the profile's end to the server's response.
const PATIENCE: Duration = Duration::from_secs(60);
/// How the reason of a server begins that recorded nothing.
const NO_SAMPLES: &str = "there are no samples";
/// Functions that are named as those that grew most.
const GROWTH_MAX: usize = 10;

pub fn run(options: &ProfileOptions) -> Result<(), Failure> {
    // A profile takes time, and is lost if it cannot be written.
    for path in [Some(&options.output), options.off_cpu.as_ref()] {
        path.map_or(Ok(()), |path| check_output(path))?;
    }
    let before = match &options.diff {
        Some(path) => Some(read(path)?),
        None => None,
    };
    let is_url = options.server.contains("://");
    if let Some(path) = &options.request
        && !(is_url && path.starts_with('/'))
    {
        return Err(Failure::usage(
            "--request needs a server, and a path that begins with /",
        ));
    }
    if before.is_none() {
        // Only a comparison takes a file in its place.
        server_url(&options.server)?;
    }
    let (cpu, waits) = if is_url {
        ask_both(options, before.is_some())?
    } else {
        (
            fs::read(&options.server).map_err(|e| at(Path::new(&options.server), e))?,
            None,
        )
    };
    if let (Some(path), Some(waits)) = (&options.off_cpu, waits) {
        write(path, &waits)?;
    }
    let Some(before) = before else {
        return write(&options.output, &cpu);
    };
    let unit = Unit::Samples { hz: options.hz };
    let after = Profile::parse(&String::from_utf8_lossy(&cpu), unit).map_err(Failure::new)?;
    let graph = Graph {
        title: "Changes".to_owned(),
        subtitle: format!(
            "{} before, {} after; red grew, blue shrank",
            counted(before.total(), "samples"),
            after.total()
        ),
    };
    let svg = profiler::differences(&before, &after, &graph).map_err(Failure::new)?;
    write(&options.output, svg.as_bytes())?;
    let (with_callees, own) = after.growth(&before, GROWTH_MAX);
    print_growth("grew most, including callees", &with_callees);
    print_growth("grew most, without callees", &own);
    Ok(())
}

fn at(path: &Path, error: std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

fn read(path: &Path) -> Result<Profile, Failure> {
    let text = fs::read_to_string(path).map_err(|e| at(path, e))?;
    let profile = Profile::parse(&text, Unit::Samples { hz: 1 });
    profile.map_err(|e| Failure::usage(format!("{}: {e}", path.display())))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(path, bytes).map_err(|e| at(path, e))?;
    say!("{}", path.display());
    Ok(())
}

fn print_growth(what: &str, grown: &[Growth]) {
    say!("");
    say!("{:>8} {:>8} {:>8}  {what}", "before", "after", "more");
    for g in grown {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let (before, after) = (percent(g.before), percent(g.after));
        say!(
            "{before:>8} {after:>8} {:>8}  {}",
            percent(g.after - g.before),
            g.name
        );
    }
}

/// The requested format, or the one that the file's name implies.
fn format_of(options: &ProfileOptions, path: &Path) -> ProfileFormat {
    options.format.unwrap_or_else(|| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match name.rsplit('.').next() {
            Some("folded" | "txt") => ProfileFormat::Folded,
            Some("gz" | "pb" | "pprof") => ProfileFormat::Pprof,
            _ => ProfileFormat::Svg,
        }
    })
}

/// The profile of processor time and, if requested, of waiting, in the same seconds.
fn ask_both(
    options: &ProfileOptions,
    is_compared: bool,
) -> Result<(Vec<u8>, Option<Vec<u8>>), Failure> {
    let runtime = super::runtime()?;
    let format = match is_compared {
        true => ProfileFormat::Folded,
        false => format_of(options, &options.output),
    };
    let recording = async {
        let cpu = ask(options, "cpu", format);
        match &options.off_cpu {
            None => Ok::<_, Failure>((cpu.await?, None)),
            Some(path) => {
                let waits = ask(options, "waits", format_of(options, path));
                let (cpu, waits) = tokio::join!(cpu, waits);
                Ok((cpu?, Some(waits?)))
            }
        }
    };
    runtime.block_on(async {
        match &options.request {
            None => recording.await,
            Some(path) => while_requesting(options, path, recording).await,
        }
    })
}

/// Sends requests one after the other until the recording is over, and reports their number.
async fn while_requesting<T>(
    options: &ProfileOptions,
    path: &str,
    recording: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let server = Server::new(&options.server, reqwest::Client::builder())?;
    let mut count = 0_u64;
    let requesting = async {
        loop {
            if let Err(failure) = request(&server, path).await {
                return failure;
            }
            count += 1;
        }
    };
    let recorded = tokio::select! {
        recorded = recording => recorded,
        failure = requesting => Err(failure),
    };
    if recorded.is_ok() {
        say!("{}", counted(count, "requests"));
    }
    recorded
}

/// Sends a GET that must succeed, and reads the response to its end.
async fn request(server: &Server, path: &str) -> Result<(), Failure> {
    let response = server.send(server.request(Method::GET, path)).await?;
    let status = response.status();
    let body = response.bytes().await.map_err(|e| server.silence(&e))?;
    if status.is_success() {
        return Ok(());
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let refusal = server.refusal(status.as_u16(), &body, "a user who may read it");
    Err(Failure::new(format!("GET {path}: {}", refusal.message)))
}

async fn ask(
    options: &ProfileOptions,
    of: &str,
    format: ProfileFormat,
) -> Result<Vec<u8>, Failure> {
    let patience = Duration::from_secs(options.seconds) + PATIENCE;
    let client = reqwest::Client::builder().timeout(patience);
    let server = Server::new(&options.server, client)?;
    let (seconds, hz, format) = (options.seconds, options.hz, format.name());
    let mut path = format!("/_settee/profile?of={of}&format={format}&seconds={seconds}&hz={hz}");
    if let Some(route) = &options.route {
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        if !route.chars().all(is_name) {
            return Err(Failure::usage(format!(
                "--route {route}: there is no such route"
            )));
        }
        path += &format!("&route={route}");
    }
    if options.all_frames {
        path.push_str("&frames=all");
    }
    let response = server.send(server.request(Method::GET, &path)).await?;
    let status = response.status().as_u16();
    let quality_of = response.headers().get("x-settee-profile").cloned();
    let routes = response.headers().get("x-settee-profile-routes").cloned();
    let body = response.bytes().await.map_err(|e| server.silence(&e))?;
    if let (200, Some(told)) = (status, quality_of) {
        if of == "cpu" {
            let told = told.to_str().unwrap_or_default();
            say!("{}", quality(told));
            if let Some(Ok(routes)) = routes.as_ref().map(|routes| routes.to_str()) {
                say!("{}", by_route(told, routes));
            }
        }
        return Ok(body.to_vec());
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    Err(match (status, body["reason"].as_str()) {
        (404, Some(reason)) if reason.starts_with(NO_SAMPLES) => no_samples(options, reason),
        // CouchDB takes the path for a database's.
        (404, Some(_)) => server.not_settee(),
        (400, Some(reason)) if reason.starts_with("Name: ") => server.not_settee(),
        (400, Some(reason)) => Failure::usage(reason),
        _ => server.refusal(status, &body, "an admin"),
    })
}

/// The failure of a profile without samples.
fn no_samples(options: &ProfileOptions, reason: &str) -> Failure {
    let Some(route) = &options.route else {
        return Failure::new(reason);
    };
    Failure::new(format!(
        "{NO_SAMPLES} of the route {route}: its requests used too little processor time. \
         `--request PATH` repeats one of them meanwhile, and `--seconds` records for longer"
    ))
}

/// The pairs of a header like `total=200 lost=0`.
fn pairs(told: &str) -> impl Iterator<Item = (&str, u64)> {
    let pairs = told.split(' ').filter_map(|pair| pair.split_once('='));
    pairs.filter_map(|(name, n)| Some((name, n.parse().ok()?)))
}

/// The number with a name in a header; 0 without one.
fn number_in(told: &str, name: &str) -> u64 {
    let found = pairs(told).find(|(known, _)| *known == name);
    found.map_or(0, |(_, n)| n)
}

/// The shares of routes in all samples.
fn by_route(told: &str, routes: &str) -> String {
    let total = number_in(told, "total").max(1) as f64;
    let share = |samples: u64| samples as f64 * 100.0 / total;
    let shares = pairs(routes).map(|(route, samples)| format!("{route} {:.1} %", share(samples)));
    let shares: Vec<String> = shares.collect();
    match shares.is_empty() {
        true => "by route: no samples".to_owned(),
        false => format!("by route: {}", shares.join(", ")),
    }
}

/// The server's description of a profile's quality, in words.
fn quality(told: &str) -> String {
    let number = |name: &str| number_in(told, name);
    let (total, unknown) = (number("total"), number("unknown"));
    let share = unknown as f64 * 100.0 / total.max(1) as f64;
    let samples = counted(total, "samples");
    let mut text = format!("{samples}, {share:.1} % with frames that are not known");
    for (name, what) in [
        ("lost", "samples were lost"),
        ("threads_left_out", "threads could not be sampled"),
    ] {
        match number(name) {
            0 => {}
            n => text += &format!(", {n} {what}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_have_their_shares_of_all_samples() {
        let told = by_route("total=200 unknown=3", "document_read=120 find=7 x=y");
        assert_eq!(told, "by route: document_read 60.0 %, find 3.5 %");
        assert_eq!(by_route("total=200", ""), "by route: no samples");
    }

    #[test]
    fn the_quality_of_a_profile_is_said_in_words() {
        assert_eq!(
            quality("total=200 unknown=3 lost=0 threads_left_out=0"),
            "200 samples, 1.5 % with frames that are not known"
        );
        assert!(quality("total=1 unknown=0 lost=7 threads_left_out=2").ends_with(
            "0.0 % with frames that are not known, 7 samples were lost, 2 threads could not be sampled"
        ));
    }
}
