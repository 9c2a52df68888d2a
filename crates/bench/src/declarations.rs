//! Large nested documents of the published view benchmark's shape: declarations of about 16 KB.
//!
//! Every document is generated from its number and a fixed seed, so that all servers and runs have
//! the same ones. Texts consist of random syllables. Amounts are small integers, so that sums
//! over all documents are exact in a double.

use std::io::Write as _;

use fastrand::Rng;

const SEED: u64 = 0x5e77_ee00;
const AMOUNT_MAX: u32 = 1_000_000;
const REGIONS: u32 = 25;
const FIRST_YEAR: u32 = 2012;
const YEARS: u32 = 8;

const SYLLABLES: &[&str] = &[
    "ba", "co", "di", "fu", "ge", "ka", "lo", "mi", "nu", "pe", "ra", "so", "ti", "vu", "ze",
    "mar", "len", "tis", "gor", "pun",
];
const CURRENCIES: &[&str] = &["AAA", "BBB", "CCC"];
const KINDS: &[&str] = &["land", "building", "vehicle", "share", "deposit", "work"];

/// Appends the members of declaration `number`, without braces.
pub(crate) fn push_members(out: &mut Vec<u8>, number: u64) {
    let mut writer = Writer {
        out,
        rng: Rng::with_seed(SEED.wrapping_add(number)),
    };
    writer.declaration(number);
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    rng: Rng,
}

impl Writer<'_> {
    fn declaration(&mut self, number: u64) {
        let year = FIRST_YEAR + self.rng.u32(..YEARS);
        let declarant = self.code();
        self.push(format_args!(
            r#""type":"declaration","number":{number},"year":{year},"status":"filed","submitted":"#
        ));
        self.date(year + 1);
        let (region, group) = (self.rng.u32(..REGIONS), self.rng.u32(..400));
        self.push(format_args!(
            r#","declarant":{{"code":"{declarant}","region":"r-{region:02}","group":"g-{group:03}","unit":"#
        ));
        self.words(4);
        self.text(r#","position":"#);
        self.words(3);
        self.text(r#"},"income":"#);
        self.items(6, 18, |writer| writer.income(year));
        self.text(r#","assets":"#);
        self.items(12, 28, |writer| writer.asset(year, &declarant));
        self.text(r#","liabilities":"#);
        self.items(3, 11, |writer| writer.liability(year));
        self.text(r#","transfers":"#);
        self.items(4, 14, |writer| writer.transfer(year));
        self.text(r#","statements":"#);
        self.items(5, 14, Self::statement);
    }

    fn income(&mut self, year: u32) {
        let year = year - self.rng.u32(..3);
        let amount = self.amount();
        self.push(format_args!(
            r#""year":{year},"amount":{amount},"currency":"#
        ));
        self.one_of(CURRENCIES);
        self.text(r#","date":"#);
        self.date(year);
        let code = self.code();
        self.push(format_args!(r#","source":{{"code":"{code}","name":"#));
        self.words(4);
        let taxed = self.rng.bool();
        self.push(format_args!(r#"}},"taxed":{taxed},"note":"#));
        self.words(6);
    }

    fn asset(&mut self, year: u32, declarant: &str) {
        self.text(r#""kind":"#);
        self.one_of(KINDS);
        let amount = self.amount();
        self.push(format_args!(r#","amount":{amount},"currency":"#));
        self.one_of(CURRENCIES);
        self.text(r#","acquired":"#);
        let years_ago = self.rng.u32(..12);
        self.date(year - years_ago);
        let area = f64::from(self.rng.u32(..40_000)) / 4.0;
        let (lot, postal) = (self.code(), self.below(100_000));
        self.push(format_args!(
            r#","area":{area},"place":{{"lot":"{lot}","postal":"{postal:05}","street":"#
        ));
        self.words(3);
        self.text(r#"},"owners":"#);
        let own_share = 1 + self.rng.u32(..100);
        self.text(r#"[{"code":""#);
        self.text(declarant);
        self.push(format_args!(r#"","share":{own_share}}}"#));
        for _ in 0..self.rng.u32(..4) {
            let (code, share) = (self.code(), 1 + self.rng.u32(..50));
            self.push(format_args!(r#",{{"code":"{code}","share":{share}}}"#));
        }
        self.text(r#"],"note":"#);
        self.words(5);
    }

    fn liability(&mut self, year: u32) {
        let (amount, rate) = (self.amount(), self.below(30));
        self.push(format_args!(r#""amount":{amount},"rate":{rate},"until":"#));
        self.date(year + 5);
        let (code, settled) = (self.code(), self.rng.bool());
        self.push(format_args!(
            r#","settled":{settled},"creditor":{{"code":"{code}","name":"#
        ));
        self.words(4);
        self.text("}");
    }

    fn transfer(&mut self, year: u32) {
        self.text(r#""date":"#);
        self.date(year);
        let amount = self.amount();
        let direction = if self.rng.bool() { "in" } else { "out" };
        let (from, to) = (self.code(), self.code());
        self.push(format_args!(
            r#","direction":"{direction}","amount":{amount},"from":"{from}","to":"{to}","purpose":"#
        ));
        self.words(6);
    }

    fn statement(&mut self) {
        self.text(r#""title":"#);
        self.words(5);
        self.text(r#","text":"#);
        let count = 20 + self.rng.u32(..60);
        self.words(count);
    }

    fn items(&mut self, min: u32, max: u32, mut item: impl FnMut(&mut Self)) {
        let count = min + self.rng.u32(..=max - min);
        self.text("[");
        for at in 0..count {
            self.text(if at > 0 { ",{" } else { "{" });
            item(self);
            self.text("}");
        }
        self.text("]");
    }

    fn words(&mut self, count: u32) {
        self.text("\"");
        for at in 0..count {
            if at > 0 {
                self.text(" ");
            }
            for _ in 0..2 + self.rng.usize(..3) {
                let syllable = SYLLABLES[self.rng.usize(..SYLLABLES.len())];
                self.text(syllable);
            }
        }
        self.text("\"");
    }

    fn one_of(&mut self, names: &[&str]) {
        let name = names[self.rng.usize(..names.len())];
        self.push(format_args!(r#""{name}""#));
    }

    fn date(&mut self, year: u32) {
        let (month, day) = (1 + self.rng.u32(..12), 1 + self.rng.u32(..28));
        self.push(format_args!(r#""{year}-{month:02}-{day:02}""#));
    }

    fn code(&mut self) -> String {
        format!("p-{:08}", self.below(100_000_000))
    }

    fn amount(&mut self) -> u32 {
        self.below(AMOUNT_MAX)
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.rng.u32(..bound)
    }

    fn text(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a Vec cannot fail.
        let _ = self.out.write_fmt(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn text(number: u64) -> Vec<u8> {
        let mut out = b"{".to_vec();
        push_members(&mut out, number);
        out.push(b'}');
        out
    }

    #[test]
    fn declarations_are_objects_of_about_16_kilobytes() {
        let sizes: Vec<usize> = (0..200).map(|number| text(number).len()).collect();
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        assert!((15_000..18_000).contains(&mean), "{mean}");
        let parsed: Value = serde_json::from_slice(&text(7)).unwrap();
        assert_eq!(parsed["number"], 7);
        assert!(parsed["assets"][0]["owners"][0]["share"].is_u64());
    }

    #[test]
    fn a_number_gives_the_same_declaration_every_time_and_no_other_number_does() {
        assert_eq!(text(3), text(3));
        assert_ne!(text(3)[100..], text(4)[100..]);
    }
}
