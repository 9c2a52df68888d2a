//! GETs of the user's own paths: some share clients by their weights, others have clients of their
//! own.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::{Caller, Outcome, Workload, alone};
use crate::error::BenchError;
use crate::pace::{ClientTime, Pace, Pacing, Turns};
use crate::slice::Slice;
use crate::system::{System, Watch, WorkloadPart};

/// A client gives up after 100 failed requests in a row.
const FAILURES_IN_A_ROW_MAX: u32 = 100;
/// A list may not be larger,
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// or have more paths: each is a line of the report.
const URLS_MAX: usize = 64;
const CLIENTS_MAX: usize = 100_000;

/// Paths, and how often each is requested.
#[derive(Debug, Clone, PartialEq)]
pub struct UrlList(Vec<Url>);

#[derive(Debug, Clone, PartialEq)]
struct Url {
    path: String,
    /// Its line in the report.
    name: &'static str,
    share: Share,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Share {
    /// Share of the requests of the clients that all weighted paths have in common.
    Weight(f64),
    /// Number of clients that request this path alone.
    Clients(usize),
}

impl Share {
    /// Reads a weight, or a number of clients with an `x` behind it.
    fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('x') {
            Some(clients) => {
                let clients = clients.parse::<usize>().ok();
                let clients = clients.filter(|clients| (1..=CLIENTS_MAX).contains(clients));
                clients.map(Self::Clients)
            }
            None => {
                let weight = text.parse::<f64>().ok();
                let weight = weight.filter(|weight| weight.is_finite() && *weight > 0.0);
                weight.map(Self::Weight)
            }
        }
    }
}

impl UrlList {
    /// Reads a file with lines like `3 /db/doc`, a weight and a path, and `300x /db/doc`, a number of
    /// clients and their path. Lines that begin with `#` are remarks.
    ///
    /// # Errors
    /// [`BenchError::Options`] names the file, the line and the mistake.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        let refuse = |why: String| BenchError::Options(format!("--urls {}: {why}", path.display()));
        let size = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?;
        if size.len() > FILE_BYTES_MAX {
            let bytes = size.len();
            return Err(refuse(format!(
                "it has {bytes} bytes, and may have {FILE_BYTES_MAX}"
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
        Self::parse(&text).map_err(refuse)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut urls: Vec<Url> = Vec::new();
        let lines = text.lines().map(str::trim).enumerate();
        for (at, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let refuse = |why: &str| format!("line {}: {why}", at + 1);
            let (share, path) = line.split_once(char::is_whitespace).ok_or_else(|| {
                refuse("give a weight, or a number of clients as in 300x, and a path")
            })?;
            let share = Share::parse(share).ok_or_else(|| {
                refuse("the first word must be a weight above 0, or a number of clients from 1x to 100000x")
            })?;
            let path = path.trim();
            if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(refuse(
                    "a path begins with / and has neither spaces nor other than ASCII characters: encode them",
                ));
            }
            if urls.iter().any(|url| url.path == path) {
                return Err(refuse("this path is listed twice"));
            }
            urls.push(Url {
                path: path.to_owned(),
                // Names of lines live as long as the program, which reads one list.
                name: format!("urls {path}").leak(),
                share,
            });
        }
        match urls.len() {
            0 => Err("it has no paths".to_owned()),
            1..=URLS_MAX => Ok(Self(urls)),
            count => Err(format!("it has {count} paths, and may have {URLS_MAX}")),
        }
    }
}

/// The requests of a list, for a time.
pub(crate) struct Urls {
    pub(crate) list: UrlList,
    /// Clients of the weighted paths.
    pub(crate) connections: usize,
}

/// Clients that choose among the same paths.
struct Group {
    /// Numbers of paths, and their weights.
    choices: Rc<[(usize, f64)]>,
    clients: usize,
    pace: Pace,
}

impl Urls {
    /// The clients of the weighted paths, if there are any, and those of each other path. A rate is
    /// that of the weighted paths.
    fn groups(&self, pace: Pace) -> Vec<Group> {
        let urls = || self.list.0.iter().enumerate();
        let weighted = urls().filter_map(|(at, url)| match url.share {
            Share::Weight(weight) => Some((at, weight)),
            Share::Clients(_) => None,
        });
        let choices: Rc<[(usize, f64)]> = weighted.collect();
        let pool = (!choices.is_empty()).then_some(Group {
            choices,
            clients: self.connections,
            pace,
        });
        let streams = urls().filter_map(|(at, url)| match url.share {
            Share::Weight(_) => None,
            Share::Clients(clients) => Some(Group {
                choices: Rc::from([(at, 1.0)]),
                clients,
                pace: Pace { rate: None, ..pace },
            }),
        });
        pool.into_iter().chain(streams).collect()
    }
}

impl Workload for Urls {
    type State = ();

    /// Requests each path once, so that mistakes are found before anything is measured.
    async fn prepare(&self, system: &System) -> Result<(), BenchError> {
        for url in &self.list.0 {
            system.require("GET", &url.path, None).await?;
        }
        Ok(())
    }

    async fn round(
        &self,
        system: &System,
        _state: &mut (),
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let target = &system.target;
        let watch = Watch::start(&system.pids);
        let groups = self.groups(target.pace());
        let mut callers = Vec::new();
        for (at, group) in groups.iter().enumerate() {
            for _ in 0..group.clients {
                callers.push((at, Caller::connect(target).await?));
            }
        }
        let client_before = ClientTime::now();
        let mut pacings = Vec::with_capacity(groups.len());
        for group in &groups {
            pacings.push(Pacing::start(group.pace, Some(length), group.clients)?);
        }
        let shared = Rc::new(Shared {
            paths: self.list.0.iter().map(|url| url.path.clone()).collect(),
            slices: RefCell::new(vec![Slice::new(); self.list.0.len()]),
            began: Instant::now(),
        });
        let mut running = tokio::task::JoinSet::new();
        for (at, caller) in callers {
            let choices = Rc::clone(&groups[at].choices);
            running.spawn_local(client(
                caller,
                choices,
                Rc::clone(&shared),
                pacings[at].turns(),
            ));
        }
        while let Some(joined) = running.join_next().await {
            if let Err(failed) = joined {
                std::panic::resume_unwind(failed.into_panic());
            }
        }
        let slices = shared.slices.take();
        let mut whole = Slice::new();
        for slice in &slices {
            whole.merge(slice.clone());
        }
        whole.seconds = pacings.iter().map(Pacing::seconds).fold(0.0, f64::max);
        whole.client = Some(ClientTime::now().since(client_before));
        for (open, waits) in pacings.iter().filter_map(Pacing::end) {
            whole.take_unsent(open, waits);
        }
        let mut parts = vec![watch.part("urls", "req", whole)];
        let lines = self.list.0.iter().zip(slices);
        // A weight may be so small that none was sent.
        let lines = lines.filter(|(_, slice)| slice.count > 0 || slice.errors.count > 0);
        parts.extend(lines.map(|(url, slice)| alone(url.name, slice)));
        Ok(parts)
    }

    async fn finish(&self, _side: &System, _state: ()) -> Result<Outcome, BenchError> {
        let groups = self.groups(Pace::default());
        let clients: usize = groups.iter().map(|group| group.clients).sum();
        Ok(Outcome {
            notes: vec![format!(
                "urls: {} paths, {clients} clients; a path with a weight has that share of the requests of {} clients",
                self.list.0.len(),
                self.connections
            )],
            ..Outcome::default()
        })
    }
}

/// The paths of a round, and its results.
struct Shared {
    paths: Vec<String>,
    /// One of each path. They are large, and clients are many.
    slices: RefCell<Vec<Slice>>,
    began: Instant,
}

impl Shared {
    /// Notes that a client of these paths has ended after some seconds. Those of other paths may
    /// continue: a rate that the server cannot sustain takes longer than its time.
    fn note_end(&self, choices: &[(usize, f64)], seconds: f64) {
        let mut slices = self.slices.borrow_mut();
        for (at, _) in choices {
            slices[*at].seconds = slices[*at].seconds.max(seconds);
        }
    }
}

/// One client, until its turns are over.
async fn client(
    mut caller: Caller,
    choices: Rc<[(usize, f64)]>,
    shared: Rc<Shared>,
    mut turns: Turns,
) {
    let mut rng = fastrand::Rng::new();
    let mut failures_in_a_row = 0;
    while failures_in_a_row < FAILURES_IN_A_ROW_MAX
        && let Some(turn) = turns.next().await
    {
        let at = choose(&choices, &mut rng);
        let start = turn.start();
        let done = caller.require("GET", &shared.paths[at], None).await;
        let mut slices = shared.slices.borrow_mut();
        match done {
            Ok(()) => {
                failures_in_a_row = 0;
                slices[at].record(1, start.elapsed());
            }
            Err(error) => {
                failures_in_a_row += 1;
                slices[at].errors.add(1, || error.to_string());
            }
        }
    }
    shared.note_end(&choices, shared.began.elapsed().as_secs_f64());
    caller.leave();
}

/// A number with each weight's share of the chances.
fn choose(choices: &[(usize, f64)], rng: &mut fastrand::Rng) -> usize {
    let total: f64 = choices.iter().map(|(_, weight)| weight).sum();
    let mut left = rng.f64() * total;
    for (at, weight) in choices {
        if left < *weight {
            return *at;
        }
        left -= weight;
    }
    // Rounding alone leads here.
    choices.last().map_or(0, |(at, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(String, Share)> {
        let list = UrlList::parse(text).unwrap();
        let urls = list.0.into_iter();
        urls.map(|url| (url.path, url.share)).collect()
    }

    #[test]
    fn weights_and_numbers_of_clients_are_read() {
        let text = "# a remark\n\n3 /db/a?rev=1#x\n  0.5\t/db/b\n300x /db/c\n";
        let wanted = [
            ("/db/a?rev=1#x", Share::Weight(3.0)),
            ("/db/b", Share::Weight(0.5)),
            ("/db/c", Share::Clients(300)),
        ];
        assert_eq!(
            parsed(text),
            wanted.map(|(path, share)| (path.to_owned(), share))
        );
    }

    #[test]
    fn a_mistake_is_refused_with_its_line() {
        for (text, why) in [
            ("", "no paths"),
            ("3", "line 1: give a weight"),
            ("1 /a\nx /b", "line 2: the first word"),
            ("0x /b", "line 1: the first word"),
            ("-1 /b", "line 1: the first word"),
            ("inf /b", "line 1: the first word"),
            ("1 db/a", "line 1: a path begins"),
            ("1 /db/a b", "line 1: a path begins"),
            ("1 /db/ä", "line 1: a path begins"),
            ("1 /a\n# \n2x /a", "line 3: this path is listed twice"),
        ] {
            let error = UrlList::parse(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
        let many: String = (0..=URLS_MAX).map(|n| format!("1 /{n}\n")).collect();
        assert!(UrlList::parse(&many).unwrap_err().contains("65 paths"));
    }

    #[test]
    fn weighted_paths_share_clients_and_others_have_their_own() {
        let urls = Urls {
            list: UrlList::parse("1 /a\n3x /b\n2 /c\n").unwrap(),
            connections: 7,
        };
        let pace = Pace {
            rate: Some(10.0),
            ..Pace::default()
        };
        let groups = urls.groups(pace);
        let told: Vec<_> = groups
            .iter()
            .map(|group| (&group.choices[..], group.clients, group.pace.rate))
            .collect();
        let weighted: (&[_], _, _) = (&[(0, 1.0), (2, 2.0)], 7, Some(10.0));
        let alone: (&[_], _, _) = (&[(1, 1.0)], 3, None);
        assert_eq!(told, [weighted, alone]);
    }

    #[test]
    fn a_path_has_the_time_of_its_own_clients() {
        let shared = Shared {
            paths: vec![],
            slices: RefCell::new(vec![Slice::new(); 3]),
            began: Instant::now(),
        };
        shared.note_end(&[(0, 1.0), (2, 2.0)], 4.0);
        shared.note_end(&[(1, 1.0)], 2.0);
        shared.note_end(&[(0, 1.0), (2, 2.0)], 3.0);
        let slices = shared.slices.take();
        let seconds: Vec<f64> = slices.iter().map(|slice| slice.seconds).collect();
        assert_eq!(seconds, [4.0, 2.0, 4.0]);
    }

    #[test]
    fn each_path_is_chosen_as_often_as_its_weight() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut counts = [0_i32; 3];
        for _ in 0..100_000 {
            counts[choose(&[(0, 70.0), (2, 30.0)], &mut rng)] += 1;
        }
        assert!(
            (counts[0] - 70_000).abs() < 700 && counts[1] == 0,
            "{counts:?}"
        );
    }
}
