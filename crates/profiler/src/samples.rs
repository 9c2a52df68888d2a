//! Samples as one process has them: places in files, without names. A worker hands them to the
//! server, which runs the same files.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde::{Deserialize, Serialize};

use crate::arena::Sample;
use crate::modules::{Module, Modules, Place};

/// Different stacks that are kept. Further ones are lost, and counted.
const STACKS_MAX: usize = 100_000;

/// Frames that they have together, and that are kept: some 50 MB, however deep stacks are.
const FRAMES_MAX: usize = 2_000_000;

/// One stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Stack {
    /// Its number among the names of threads.
    pub thread: u32,
    /// Inner ones first.
    pub frames: Vec<Place>,
    /// Places of code that the stack's end names, when the innermost function is of a library: one
    /// of them called it.
    pub near: Vec<Place>,
    /// The walk ended where no code is.
    pub is_cut: bool,
    /// The number of frames inside of a user's function, and its name.
    pub label: Option<(u32, String)>,
    /// The interpreter's functions, inner ones first.
    pub functions: Vec<String>,
}

/// The samples of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Samples {
    pub(crate) modules: Vec<Module>,
    pub(crate) threads: Vec<String>,
    pub(crate) stacks: Vec<(Stack, u64)>,
    /// Samples for which there was no room.
    pub lost: u64,
    /// Threads that could not be sampled.
    pub threads_left_out: u64,
}

impl Samples {
    /// None of a thread that could not be sampled.
    pub fn left_out() -> Samples {
        Samples {
            threads_left_out: 1,
            ..Samples::default()
        }
    }

    /// Returns their number, without lost ones.
    pub fn count(&self) -> u64 {
        self.stacks.iter().map(|(_, n)| n).sum()
    }

    /// As bytes, for another process of the same program.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Only maps with keys that are not texts fail, and there are no such maps.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads [`Samples::to_bytes`]; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Samples> {
        let samples: Samples = serde_json::from_slice(bytes).ok()?;
        let (modules, threads) = (samples.modules.len(), samples.threads.len());
        let is_known = |(stack, _): &(Stack, u64)| {
            let mut places = stack.frames.iter().chain(&stack.near);
            (stack.thread as usize) < threads && places.all(|p| (p.0 as usize) < modules)
        };
        samples.stacks.iter().all(is_known).then_some(samples)
    }
}

/// Samples that are being gathered.
#[derive(Default)]
pub(crate) struct SampleSet {
    pub modules: Modules,
    stacks: HashMap<Stack, u64>,
    /// The total number of frames of all stacks.
    frames: usize,
    threads: Vec<String>,
    lost: u64,
}

impl SampleSet {
    /// Adds a sample of a thread of this name.
    pub fn add(&mut self, sample: &Sample, thread: &str) {
        let stack = self.stack(sample, thread);
        let weight = u64::from(sample.weight);
        let size = stack.frames.len() + stack.near.len() + stack.functions.len();
        let is_room = self.stacks.len() < STACKS_MAX && self.frames + size <= FRAMES_MAX;
        match self.stacks.entry(stack) {
            Entry::Occupied(mut count) => *count.get_mut() += weight,
            Entry::Vacant(place) if is_room => {
                self.frames += size;
                place.insert(weight);
            }
            Entry::Vacant(_) => self.lost += weight,
        }
    }

    fn stack(&mut self, sample: &Sample, thread: &str) -> Stack {
        let thread = self
            .threads
            .iter()
            .position(|t| t == thread)
            .unwrap_or_else(|| {
                self.threads.push(thread.to_owned());
                self.threads.len() - 1
            });
        let mut frames = Vec::with_capacity(sample.depth);
        for (n, &address) in sample.frames[..sample.depth].iter().enumerate() {
            // The return address is after the call.
            let address = address.saturating_sub(u64::from(n > 0));
            match self.modules.place(address) {
                Some(place) => frames.push(place),
                None => break,
            }
        }
        let is_of_program = |place: &Place| self.modules.known[place.0 as usize] == Module::Program;
        let near = match frames.first() {
            Some(first) if is_of_program(first) => vec![],
            _ => {
                let words = &sample.words[..sample.words_len];
                let places = words
                    .iter()
                    .filter_map(|w| self.modules.place(w.wrapping_sub(1)));
                places.filter(is_of_program).take(2).collect()
            }
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let label = (sample.label_len > 0).then(|| {
            (
                sample.label_at as u32,
                text(&sample.label[..sample.label_len]),
            )
        });
        let names = sample.names[..sample.names_len].split(|b| *b == b'\n');
        Stack {
            thread: thread as u32,
            is_cut: frames.len() < sample.depth,
            frames,
            near,
            label,
            functions: names.filter(|n| !n.is_empty()).map(text).collect(),
        }
    }

    /// Counts samples that were lost before.
    pub fn lose(&mut self, samples: u64) {
        self.lost += samples;
    }

    pub fn finish(self, threads_left_out: u64) -> Samples {
        Samples {
            modules: self.modules.known,
            threads: self.threads,
            stacks: self.stacks.into_iter().collect(),
            lost: self.lost,
            threads_left_out,
        }
    }
}
