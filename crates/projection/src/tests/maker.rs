//! Functions combined from random pieces.

use super::choices::Choices;

/// Makes functions at random.
pub(super) struct Maker<'c> {
    pub choices: &'c mut Choices,
    pub variables: usize,
}

impl Maker<'_> {
    pub fn function(&mut self) -> String {
        let head = self.choices.of(&[
            "function (doc) ",
            "function (doc) ",
            "function (doc) ",
            "doc => ",
            "function f(doc) ",
            "function ({a, b: v0, c: v1 = 1}, doc = {}) ",
        ]);
        let mut body = String::from("{ var v0, v1, v2; ");
        for _ in 0..1 + self.choices.below(5) {
            body += &self.statement(3);
        }
        format!("{head}{body} }}")
    }

    fn statement(&mut self, depth: usize) -> String {
        let e = self.expression(depth);
        let f = self.expression(depth);
        if depth == 0 {
            return format!("emit({e}, {f}); ");
        }
        let s = self.statement(depth - 1);
        let v = self.variable();
        match self.choices.below(16) {
            0..=3 => format!("emit({e}, {f}); "),
            4 | 5 => format!("{v} = {e}; "),
            6 => format!("if ({e}) {{ {s} }} else {{ {v} = {f}; }} "),
            7 => format!("for (var {v} in {e}) {{ {s} }} "),
            8 => format!("for (var {v} of {e}) {{ {s} }} "),
            9 => format!("for (var i = 0; i < 3; i++) {{ emit({e}[i], 1); }} "),
            10 => format!("var {{a: {v}, b: {{x: v2}} = {{}}}} = {e}; {s}"),
            11 => format!("try {{ {s} }} catch (e) {{ emit({e}, 1) }} "),
            12 => format!("({e}).forEach(function ({v}, i) {{ {s} }}); "),
            13 => format!("(function ({v}) {{ {s} }})({e}); "),
            14 => format!("switch ({e}) {{ case {f}: {s} default: emit(1, {v}) }} "),
            _ => format!("{{ let {v} = {e}; {s} }} "),
        }
    }

    fn variable(&mut self) -> String {
        self.variables += 1;
        self.choices.of(&["v0", "v1", "v2"]).to_owned()
    }

    fn name(&mut self) -> &'static str {
        self.choices.of(&[
            "a",
            "b",
            "c",
            "x",
            "y",
            "type",
            "next",
            "length",
            "constructor",
            "toString",
            "a",
            "b",
        ])
    }

    fn expression(&mut self, depth: usize) -> String {
        if depth == 0 || self.choices.below(6) == 0 {
            let name = self.name();
            return match self.choices.below(8) {
                0 => "doc".into(),
                1 => self.variable(),
                2 => self
                    .choices
                    .of(&["1", "null", "'x'", "[]", "{}", "undefined", "'a'", "0"])
                    .into(),
                _ => format!("doc.{name}"),
            };
        }
        let e = self.expression(depth - 1);
        let f = self.expression(depth - 1);
        let name = self.name();
        let v = self.variable();
        match self.choices.below(24) {
            0..=4 => format!("({e}).{name}"),
            5 => format!("({e})?.{name}"),
            6 => format!("({e})[{}]", self.choices.below(3)),
            7 => format!("({e})[{v}]"),
            8 => format!("({e} && {f})"),
            9 => format!("({e} || {f})"),
            10 => format!("({e} ? {f} : {v})"),
            11 => format!("({e} === {f})"),
            12 => format!("({e} == {f})"),
            13 => format!("!({e})"),
            14 => format!("typeof ({e})"),
            15 => format!("({v} = {e})"),
            16 => format!("[{e}, {f}]"),
            17 => format!("({{k: {e}}})"),
            18 => format!("('{name}' in ({e}))"),
            19 => format!("Array.isArray({e})"),
            20 => format!("({e}, {f})"),
            21 => format!("({e}).map(function ({v}) {{ return {f} }})"),
            22 => format!("({e}).hasOwnProperty('{name}')"),
            _ => format!("({e} ?? {f})"),
        }
    }
}
