//! The functions of a design document.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::required::required;

/// Objects of functions, by name.
const SECTIONS: [&str; 4] = ["filters", "lists", "shows", "updates"];
/// Objects of objects with functions: name, and members that are functions.
const NESTED: [(&str, &[&str]); 3] = [
    ("views", &["map", "reduce"]),
    ("indexes", &["index"]),
    ("nouveau", &["index"]),
];
/// Members that are functions themselves.
const SINGLE: [&str; 2] = ["validate_doc_update", "rewrites"];
/// Deeper members are not searched for modules.
const DEPTH_MAX: usize = 16;
/// Modules of more names are not searched for.
const NAMES_MAX: usize = 1000;

/// How a source is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A function of a design document.
    Function,
    /// A CommonJS module.
    Module,
}

/// A function of a design document, or a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesignFunction<'d> {
    /// The names that lead to it: `["views", "by_day", "map"]`.
    pub path: Vec<&'d str>,
    /// The source.
    pub source: &'d str,
    /// How it is compiled.
    pub form: Form,
}

/// Returns the functions of a design document and the modules that they require, in the order of
/// their paths. Built-in reduce functions are left out.
pub fn design_functions(design: &Map<String, Value>) -> Vec<DesignFunction<'_>> {
    let mut functions = vec![];
    for (section, members) in NESTED {
        // `views.lib` has modules.
        let all =
            object(design.get(section)).filter(|(name, _)| (section, *name) != ("views", "lib"));
        for (name, of) in all {
            let own = object(Some(of)).filter(|(member, _)| members.contains(member));
            functions.extend(
                own.filter_map(|(member, source)| function(vec![section, name, member], source)),
            );
        }
    }
    for section in SECTIONS {
        let all = object(design.get(section));
        functions.extend(all.filter_map(|(name, source)| function(vec![section, name], source)));
    }
    let single = SINGLE.into_iter();
    functions.extend(single.filter_map(|name| function(vec![name], design.get(name)?)));
    add_modules(design, &mut functions);
    functions.sort_by(|a, b| a.path.cmp(&b.path));
    functions
}

/// Returns the function of a source, unless it is a built-in one.
fn function<'d>(path: Vec<&'d str>, source: &'d Value) -> Option<DesignFunction<'d>> {
    let source = source.as_str()?;
    let is_function = !source.is_empty() && !source.starts_with('_');
    let form = Form::Function;
    is_function.then_some(DesignFunction { path, source, form })
}

/// The members of a value, if it is an object.
fn object(value: Option<&Value>) -> impl Iterator<Item = (&str, &Value)> {
    let members = value.and_then(Value::as_object).into_iter().flatten();
    members.map(|(name, value)| (name.as_str(), value))
}

/// Adds the modules whose names functions, and these modules, require.
fn add_modules<'d>(design: &'d Map<String, Value>, functions: &mut Vec<DesignFunction<'d>>) {
    let mut texts = vec![];
    for (name, value) in design {
        if !name.starts_with('_') {
            collect_texts(value, vec![name], &mut texts);
        }
    }
    // A design document may have hundred thousands of texts and of functions.
    let mut by_last: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, (path, _)) in texts.iter().enumerate() {
        let last = path.last().copied().unwrap_or_default();
        by_last.entry(last).or_default().push(at);
    }
    let mut paths: HashSet<Vec<&str>> = functions.iter().map(|f| f.path.clone()).collect();
    let mut names: HashSet<String> = HashSet::new();
    let mut next = 0;
    while let Some(function) = functions.get(next) {
        next += 1;
        for name in required(function.source) {
            if names.len() == NAMES_MAX || names.contains(&name) {
                continue;
            }
            let wanted = Wanted::of(&name);
            let same_end = by_last.get(wanted.last()).into_iter().flatten();
            for (path, text) in same_end.map(|at| &texts[*at]) {
                if wanted.is_at(path) && paths.insert(path.clone()) {
                    functions.push(DesignFunction {
                        path: path.clone(),
                        source: text,
                        form: Form::Module,
                    });
                }
            }
            names.insert(name);
        }
    }
}

/// The name of a required module.
struct Wanted<'n> {
    parts: Vec<&'n str>,
    is_relative: bool,
}

impl<'n> Wanted<'n> {
    fn of(name: &'n str) -> Wanted<'n> {
        let parts = name.split('/').filter(|part| !matches!(*part, "." | ".."));
        Wanted {
            parts: parts.collect(),
            is_relative: name.starts_with('.'),
        }
    }

    fn last(&self) -> &'n str {
        self.parts.last().copied().unwrap_or_default()
    }

    /// Whether it may lead to a path: the end of the path is the name, without its parts `.` and
    /// `..`, which depend on the module that requires it.
    fn is_at(&self, path: &[&str]) -> bool {
        match self.is_relative {
            true => !self.parts.is_empty() && path.ends_with(&self.parts),
            false => path == self.parts,
        }
    }
}

fn collect_texts<'d>(
    value: &'d Value,
    path: Vec<&'d str>,
    texts: &mut Vec<(Vec<&'d str>, &'d str)>,
) {
    match value {
        Value::String(text) => texts.push((path, text)),
        Value::Object(members) if path.len() < DEPTH_MAX => {
            for (name, value) in members {
                let path = path.iter().copied().chain([name.as_str()]);
                collect_texts(value, path.collect(), texts);
            }
        }
        _ => {}
    }
}
