//! Resolves addresses to names.
//!
//! Names are those of the symbol tables: of functions as they were compiled, so an inlined one is
//! part of its caller.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;

use object::read::{ReadCache, ReadRef};
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::modules::{Module, Modules, Place};
use crate::profile::{CUT, Profile, UNKNOWN};
use crate::sampler;
use crate::samples::{Samples, Stack};

/// The frame in place of those of the runtime.
const RUNTIME: &str = "[runtime]";
/// The crates of the runtime: what they call is of interest, and the way there is not.
const RUNTIME_CRATES: [&str; 9] = [
    "alloc",
    "core",
    "futures_core",
    "futures_util",
    "hyper",
    "hyper_util",
    "std",
    "tokio",
    "tokio_rustls",
];
/// The interpreter of JavaScript.
const INTERPRETER: &str = "JS_CallInternal";
/// Functions of a C library that are chosen when it is loaded have no names in its table, and are
/// not longer than this.
const CHOSEN_BYTES_MAX: u64 = 0x900;
/// Functions that only call others.
const TRAMPOLINES: [&str; 11] = [
    "Thread::new::thread_start",
    "__rust_begin_short_backtrace",
    "__rust_end_short_backtrace",
    "__rust_try",
    "core::ops::function::FnOnce::call_once",
    "FnOnce>::call_once",
    "panicking::catch_unwind",
    "panicking::try",
    "panic::catch_unwind",
    "rust_psm_on_stack",
    "std::sys::thread",
];

/// The name of a function.
#[derive(Clone)]
struct Name {
    /// As a person reads it.
    text: String,
    /// It is of one of [`RUNTIME_CRATES`].
    is_of_runtime: bool,
}

impl Name {
    /// The name of a symbol.
    fn of(symbol: &str) -> Name {
        let whole = demangled(symbol);
        Name {
            text: shortened(&whole),
            is_of_runtime: is_of_runtime(&whole),
        }
    }
}

/// A frame of a stack.
struct Frame {
    /// It is inside of the function that the label names.
    is_inside: bool,
    is_of_runtime: bool,
    name: String,
}

/// The symbols of one module.
#[derive(Default)]
struct ModuleSymbols {
    names: BTreeMap<u64, Name>,
    /// Addresses right after an instruction that calls the kernel.
    kernel: BTreeSet<u64>,
}

/// Finds the names of samples' addresses.
#[derive(Default)]
pub struct Symbols {
    known: HashMap<Module, ModuleSymbols>,
    /// Functions of the C library that its table does not name.
    chosen: Vec<(Module, u64, &'static str)>,
    folds_runtime: bool,
}

impl Symbols {
    /// For these samples, of this process and of others of the same program. Files are read once
    /// for all.
    pub fn of<'a>(samples: impl Iterator<Item = &'a Samples> + Clone) -> Symbols {
        let mut modules = Modules::default();
        modules.read();
        let chosen = sampler::chosen_functions().into_iter();
        let chosen = chosen.filter_map(|(name, address)| {
            let (module, at) = modules.place(address as u64)?;
            Some((modules.known[module as usize].clone(), at, name))
        });
        let mut symbols = Symbols {
            chosen: chosen.collect(),
            ..Symbols::default()
        };
        symbols.find(samples, &modules.known);
        symbols
    }

    /// Puts one frame in place of several of the asynchronous runtime and the standard library that lead to others.
    pub fn fold_runtime(self) -> Symbols {
        Symbols {
            folds_runtime: true,
            ..self
        }
    }

    /// Adds samples to a profile, below `root`.
    pub fn add(&self, samples: &Samples, root: &[&str], to: &mut Profile) {
        for (stack, count) in &samples.stacks {
            let mut frames: Vec<String> = root.iter().map(|r| (*r).to_owned()).collect();
            frames.push(samples.threads[stack.thread as usize].clone());
            let is_known = self.name(samples, stack, &mut frames);
            to.add(&frames, *count);
            if !is_known {
                to.add_unknown(*count);
            }
        }
        to.lose(samples.lost);
        to.leave_out(samples.threads_left_out);
    }

    /// Adds names for a stack, outer ones first; returns whether all of it is known.
    fn name(&self, samples: &Samples, stack: &Stack, to: &mut Vec<String>) -> bool {
        let Some(first) = stack.frames.first() else {
            to.push(UNKNOWN.to_owned());
            return false;
        };
        let is_whole = self.is_whole(samples, stack);
        let inner = self.frames(samples, stack, first, is_whole);
        let is_known = is_whole && inner.iter().all(|frame| frame.name != UNKNOWN);
        let mut is_outside = true;
        let label = || {
            stack.label.as_ref().map(|(_, name)| Frame {
                is_inside: false,
                is_of_runtime: false,
                name: name.clone(),
            })
        };
        let mut frames = vec![];
        for frame in inner.into_iter().rev() {
            if is_outside && frame.is_inside {
                is_outside = false;
                frames.extend(label());
            }
            frames.push(frame);
        }
        if is_outside {
            frames.extend(label());
        }
        if !is_whole {
            to.push(CUT.to_owned());
        }
        let names = match self.folds_runtime {
            true => folded(frames),
            false => frames.into_iter().map(|frame| frame.name).collect(),
        };
        with_functions(names, &stack.functions, to);
        is_known
    }

    /// The frames of a stack, inner ones first.
    fn frames(
        &self,
        samples: &Samples,
        stack: &Stack,
        first: &Place,
        is_whole: bool,
    ) -> Vec<Frame> {
        let frame = |place: &Place, is_inside: bool| {
            let Name {
                text,
                is_of_runtime,
            } = self.name_of(&samples.modules, place);
            Frame {
                is_inside,
                is_of_runtime,
                name: text,
            }
        };
        let mut inner = vec![];
        if let Some(known) = self.known.get(&samples.modules[first.0 as usize])
            && known.kernel.contains(&first.1)
        {
            inner.push(Frame {
                is_inside: true,
                is_of_runtime: false,
                name: kernel(&frame(first, true).name),
            });
        }
        let label_at = stack.label.as_ref().map(|(at, _)| *at as usize);
        // The function that starts the thread adds nothing to its name.
        let begins = usize::from(is_whole && stack.frames.len() > 1);
        let frames = &stack.frames[..stack.frames.len() - begins];
        for (n, place) in frames.iter().enumerate() {
            let is_inside = label_at.is_some_and(|at| n < at);
            inner.push(frame(place, is_inside));
            // A function without a frame pointer is followed by its caller's caller.
            if n == 0
                && let Some(caller) = stack.near.first()
                && stack.frames.get(1) != Some(caller)
            {
                inner.push(frame(caller, is_inside));
            }
        }
        inner
    }

    /// Returns whether the stack was walked to the start of its thread.
    fn is_whole(&self, samples: &Samples, stack: &Stack) -> bool {
        // Threads start in the C library, and the program too.
        let is_begin = |place: &Place| match &samples.modules[place.0 as usize] {
            Module::Program => self.name_of(&samples.modules, place).text == "_start",
            Module::Library(path) => {
                // Those of C++ start in its library, which has no frame pointers either.
                let name = file_name(path);
                name.starts_with("libc.") || name.starts_with("libstdc++")
            }
            Module::Other(_) => false,
        };
        stack.frames.last().is_some_and(is_begin)
    }

    fn name_of(&self, modules: &[Module], place: &Place) -> Name {
        let module = &modules[place.0 as usize];
        let known = self.known.get(module).and_then(|k| k.names.get(&place.1));
        if let Some(name) = known {
            return name.clone();
        }
        let other = |text: String| Name {
            text,
            is_of_runtime: false,
        };
        let is_in = |from: u64| place.1 >= from && place.1 - from < CHOSEN_BYTES_MAX;
        let chosen = self.chosen.iter();
        let chosen = chosen.filter(|(of, from, _)| of == module && is_in(*from));
        if let Some((.., name)) = chosen.max_by_key(|(_, from, _)| *from) {
            return other((*name).to_owned());
        }
        other(match module {
            Module::Program => UNKNOWN.to_owned(),
            Module::Library(path) => format!("[{}]", file_name(path)),
            Module::Other(name) => name.clone(),
        })
    }

    /// Finds the names of all places of samples. Of files, those are read that this process runs
    /// too: others come from a worker, whose word does not open files.
    fn find<'a>(&mut self, samples: impl Iterator<Item = &'a Samples>, own: &[Module]) {
        let mut wanted: HashMap<&Module, BTreeSet<u64>> = HashMap::new();
        for samples in samples {
            let stacks = samples.stacks.iter();
            for (module, at) in stacks.flat_map(|(stack, _)| stack.frames.iter().chain(&stack.near))
            {
                let module = &samples.modules[*module as usize];
                wanted.entry(module).or_default().insert(*at);
            }
        }
        for (module, places) in wanted {
            let path = match module {
                Module::Program => "/proc/self/exe",
                Module::Library(path) if own.contains(module) => path,
                _ => continue,
            };
            let known = self.known.entry(module.clone()).or_default();
            // Without its file, code of a module has the module's name.
            if let Ok(file) = File::open(path) {
                let _ = read_names(&ReadCache::new(file), &places, known);
            }
        }
    }
}

/// Finds names for places in a file.
fn read_names<'a>(
    file: impl ReadRef<'a>,
    places: &BTreeSet<u64>,
    known: &mut ModuleSymbols,
) -> object::Result<()> {
    let object = object::File::parse(file)?;
    // Symbols have the addresses that the linker gave, places are in the file.
    let mut addresses = BTreeMap::new();
    for segment in object.segments() {
        let (from, len) = segment.file_range();
        for &place in places.range(from..from.saturating_add(len)) {
            addresses.insert(place - from + segment.address(), place);
        }
    }
    for &place in places {
        if calls_kernel(file, place) {
            known.kernel.insert(place);
        }
    }
    let has_table = object.symbols().next().is_some();
    let name = |symbol: object::Symbol<'a, '_, _>, known: &mut ModuleSymbols| {
        let (from, size) = (symbol.address(), symbol.size());
        if symbol.kind() != SymbolKind::Text || !symbol.is_definition() {
            return;
        }
        // Functions in assembly may have no size.
        let mut named = addresses
            .range(from..from.saturating_add(size.max(1)))
            .peekable();
        if named.peek().is_some()
            && let Ok(name) = symbol.name()
        {
            let name = Name::of(name);
            for (_, &place) in named {
                known.names.entry(place).or_insert_with(|| name.clone());
            }
        }
    };
    match has_table {
        true => object.symbols().for_each(|symbol| name(symbol, known)),
        false => object
            .dynamic_symbols()
            .for_each(|symbol| name(symbol, known)),
    }
    Ok(())
}

/// Returns whether the instruction before this address calls the kernel: then the time is the
/// kernel's.
fn calls_kernel<'a>(file: impl ReadRef<'a>, place: u64) -> bool {
    let before = |n: u64| {
        place
            .checked_sub(n)
            .and_then(|at| file.read_bytes_at(at, n).ok())
    };
    match cfg!(target_arch = "aarch64") {
        true => before(4) == Some(&[0x01, 0x00, 0x00, 0xd4]),
        false => before(2) == Some(&[0x0f, 0x05]),
    }
}

/// Returns the kernel's part of a function that calls it.
fn kernel(function: &str) -> String {
    let name = function.rsplit("::").next().unwrap_or(function);
    let name = name.trim_start_matches("__libc_").trim_start_matches('_');
    match function.starts_with('[') {
        true => "[kernel]".to_owned(),
        false => format!("[kernel] {name}"),
    }
}

/// Puts the interpreter's functions where the interpreter is, and leaves out what only calls
/// others.
fn with_functions(frames: Vec<String>, functions: &[String], to: &mut Vec<String>) {
    let is_interpreter = |name: &String| name == INTERPRETER;
    let first = frames.iter().position(is_interpreter);
    let last = frames.iter().rposition(is_interpreter);
    for (n, name) in frames.into_iter().enumerate() {
        if Some(n) == first {
            to.extend(
                functions
                    .iter()
                    .rev()
                    .map(|f| format!("{f} (js)").replace(';', " ")),
            );
        }
        let is_within = matches!((first, last), (Some(a), Some(b)) if (a..b).contains(&n));
        let is_again = to.last() == Some(&name) && name.ends_with("{closure}");
        if !(is_again || is_trampoline(&name) || is_within && !functions.is_empty()) {
            to.push(name);
        }
    }
}

fn is_trampoline(name: &str) -> bool {
    TRAMPOLINES.iter().any(|t| name.contains(t))
}

/// Puts one frame in place of several of the runtime that lead to others. At the end of a stack they are kept: there the runtime itself works.
fn folded(frames: Vec<Frame>) -> Vec<String> {
    let mut names = vec![];
    let mut run = vec![];
    for frame in frames.into_iter().filter(|f| !is_trampoline(&f.name)) {
        if frame.is_of_runtime {
            run.push(frame.name);
            continue;
        }
        match run.len() {
            0 | 1 => names.append(&mut run),
            _ => {
                run.clear();
                names.push(RUNTIME.to_owned());
            }
        }
        names.push(frame.name);
    }
    names.append(&mut run);
    names
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns the name of a symbol, in C++ without parameters.
fn demangled(symbol: &str) -> String {
    match rustc_demangle::try_demangle(symbol) {
        Ok(name) => format!("{name:#}"),
        Err(_) => {
            let options = cpp_demangle::DemangleOptions::new()
                .no_params()
                .no_return_type();
            let name = cpp_demangle::Symbol::new(symbol).ok();
            let name = name.and_then(|name| name.demangle_with_options(&options).ok());
            name.unwrap_or_else(|| symbol.to_owned())
        }
    }
}

/// Returns a name as a person reads it: without arguments of generics.
fn shortened(name: &str) -> String {
    let name = without_arguments(name).replace("{{closure}}", "{closure}");
    name.replace(';', " ")
}

/// Returns whether a function, or the type that has it, is of one of [`RUNTIME_CRATES`].
fn is_of_runtime(name: &str) -> bool {
    let path = name.trim_start_matches(['<', '&', '*', '(']);
    let path = path.strip_prefix("mut ").unwrap_or(path);
    let path = path.strip_prefix("dyn ").unwrap_or(path);
    let first = path.split_once("::").map(|(first, _)| first);
    first.is_some_and(|first| RUNTIME_CRATES.contains(&first))
}

/// Removes angle brackets and their contents, except `<Type as Trait>` at the start, whose types
/// are named without their paths.
fn without_arguments(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut depth = 0usize;
    let is_impl = name.starts_with('<');
    let mut before = ' ';
    for (n, c) in name.char_indices() {
        match c {
            '<' if n == 0 && is_impl => out.push('<'),
            // `operator<` and its like are names.
            '<' if depth == 0 && out.ends_with("operator") => out.push('<'),
            '<' => depth += 1,
            '>' if before == '-' => {}
            '>' if depth == 0 => out.push('>'),
            '>' => depth -= 1,
            _ if depth == 0 => out.push(c),
            _ => {}
        }
        before = c;
    }
    let out = out.replace("::::", "::");
    let out = out.trim_end_matches("::");
    match out.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        Some((types, rest)) => {
            let mut types = types.split(" as ").map(last_of_path);
            let first = types.next().unwrap_or_default();
            match types.next() {
                Some(of) => format!("<{first} as {of}>{rest}"),
                None => format!("{first}{rest}"),
            }
        }
        None => out.to_owned(),
    }
}

fn last_of_path(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_say_what_they_are() {
        for (symbol, wanted) in [
            (
                "_ZN7storage6commit5write17h0123456789abcdefE",
                "storage::commit::write",
            ),
            (
                "_ZN7rocksdb6DBImpl3GetERKNS_11ReadOptionsE",
                "rocksdb::DBImpl::Get",
            ),
            ("JS_CallInternal", "JS_CallInternal"),
        ] {
            assert_eq!(Name::of(symbol).text, wanted);
        }
        for (name, wanted) in [
            ("a::b::<c::D<e>, f>::g", "a::b::g"),
            (
                "<a::B<c> as d::e::Future>::poll::{{closure}}",
                "<B as Future>::poll::{{closure}}",
            ),
            ("<a::b::C>::new", "C::new"),
            ("x::operator<", "x::operator<"),
            (
                "std::vector<int, std::allocator<int> >::push_back",
                "std::vector::push_back",
            ),
            ("f::<fn() -> u8>", "f"),
        ] {
            assert_eq!(without_arguments(name), wanted);
        }
    }

    #[test]
    fn frames_of_the_runtime_that_lead_to_others_become_one() {
        for (name, wanted) in [
            ("tokio::runtime::task::raw::poll", true),
            (
                "<hyper::proto::h1::Dispatcher<D> as core::future::Future>::poll",
                true,
            ),
            (
                "<&mut dyn core::fmt::Write as core::fmt::Write>::write_str",
                true,
            ),
            ("storage::commit::write", false),
            (
                "<http_api::connection::places::Served<F> as core::future::Future>::poll",
                false,
            ),
            ("rocksdb::DBImpl::Get", false),
            ("tokio", false),
        ] {
            assert_eq!(is_of_runtime(name), wanted, "{name}");
        }
        let frame = |name: &str| Frame {
            is_inside: false,
            is_of_runtime: is_of_runtime(name),
            name: name.to_owned(),
        };
        let frames = [
            "std::sys::thread::start",
            "tokio::run",
            "tokio::poll",
            "http_api::answer",
            "core::iter::map",
            "storage::get",
            "core::slice::sort",
            "core::slice::quicksort",
        ];
        let wanted = [
            "[runtime]",
            "http_api::answer",
            "core::iter::map",
            "storage::get",
            "core::slice::sort",
            "core::slice::quicksort",
        ];
        assert_eq!(folded(frames.map(frame).into()), wanted);
    }

    #[test]
    fn functions_stand_where_the_interpreter_is() {
        let text = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let frames = text(&[
            "main",
            "JS_Call",
            INTERPRETER,
            "js_call",
            INTERPRETER,
            "js_add",
        ]);
        let mut out = vec![];
        with_functions(frames.clone(), &text(&["inner", "outer"]), &mut out);
        let wanted = [
            "main",
            "JS_Call",
            "outer (js)",
            "inner (js)",
            INTERPRETER,
            "js_add",
        ];
        assert_eq!(out, wanted);
        out.clear();
        with_functions(frames.clone(), &[], &mut out);
        assert_eq!(out, frames);
    }

    #[test]
    fn the_kernels_part_is_named_after_its_call() {
        assert_eq!(kernel("__libc_pread64"), "[kernel] pread64");
        assert_eq!(
            kernel("rustix::backend::fs::syscalls::fdatasync"),
            "[kernel] fdatasync"
        );
        assert_eq!(kernel("[libc.so.6]"), "[kernel]");
    }
}
