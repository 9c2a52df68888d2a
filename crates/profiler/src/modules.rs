//! Which file the code at an address is from.

use serde::{Deserialize, Serialize};

use crate::process_state;

/// A file whose code runs in this process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Module {
    /// The program itself.
    Program,
    /// A library, by its path.
    Library(String),
    /// A mapping by the kernel, or similar, by its name.
    Other(String),
}

/// A place in the code of a module: its number, and how far into the file.
pub(crate) type Place = (u32, u64);

#[derive(Debug, PartialEq)]
struct MappedFile {
    from: u64,
    to: u64,
    offset: u64,
    module: u32,
}

/// All code that is mapped.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    mapped: Vec<MappedFile>,
    pub known: Vec<Module>,
}

impl Modules {
    /// Reads the present mappings. Modules keep their numbers.
    pub fn read(&mut self) {
        if let Some(known) = process_state::get() {
            self.take(&known.maps, &known.program);
            return;
        }
        let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        if let Ok(maps) = std::fs::read_to_string("/proc/self/maps") {
            self.take(&maps, &program.to_string_lossy());
        }
    }

    fn take(&mut self, maps: &str, program: &str) {
        self.mapped.clear();
        for line in maps.lines() {
            if let Some((from, to, offset, path)) = code(line) {
                let module = self.number(path, program);
                self.mapped.push(MappedFile {
                    from,
                    to,
                    offset,
                    module,
                });
            }
        }
    }

    fn number(&mut self, path: &str, program: &str) -> u32 {
        let module = match path {
            "" => Module::Other("[generated]".to_owned()),
            path if path == program => Module::Program,
            path if path.starts_with('[') => Module::Other(path.to_owned()),
            path => Module::Library(path.to_owned()),
        };
        let at = self.known.iter().position(|known| *known == module);
        at.unwrap_or_else(|| {
            self.known.push(module);
            self.known.len() - 1
        }) as u32
    }

    /// Returns the origin of the code at an address.
    pub fn place(&self, address: u64) -> Option<Place> {
        // The kernel lists them in the order of addresses.
        let after = self.mapped.partition_point(|m| m.from <= address);
        let mapped = self.mapped.get(after.checked_sub(1)?)?;
        let is_in = address < mapped.to;
        is_in.then(|| (mapped.module, address - mapped.from + mapped.offset))
    }
}

/// Start, end, offset and path of a line of `maps` that is of code.
fn code(line: &str) -> Option<(u64, u64, u64, &str)> {
    let mut rest = line;
    let mut field = || {
        let (field, after) = rest.split_once(' ')?;
        rest = after;
        Some(field)
    };
    let (from, to) = field()?.split_once('-')?;
    let rights = field()?;
    let offset = field()?;
    let (_device, _inode) = (field()?, field());
    let hex = |text| u64::from_str_radix(text, 16).ok();
    rights
        .contains('x')
        .then_some((hex(from)?, hex(to)?, hex(offset)?, rest.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_by_its_address() {
        let maps = "\
00400000-00500000 r--p 00000000 08:01 11   /opt/settee
00500000-00900000 r-xp 00100000 08:01 11   /opt/settee
7f0000000000-7f0000001000 r-xp 00001000 08:01 12   /lib/libc so.6
7f0000002000-7f0000003000 rwxp 00000000 00:00 0 \n\
7ffe00000000-7ffe00001000 r-xp 00000000 00:00 0    [vdso]\n";
        let mut modules = Modules::default();
        modules.take(maps, "/opt/settee");
        assert_eq!(modules.place(0x0050_0010), Some((0, 0x10_0010)));
        assert_eq!(modules.place(0x0040_0010), None);
        assert_eq!(modules.place(0x7f00_0000_0001), Some((1, 0x1001)));
        assert_eq!(modules.place(0x7f00_0000_1000), None);
        assert_eq!(modules.place(0), None);
        let names = [
            Module::Program,
            Module::Library("/lib/libc so.6".into()),
            Module::Other("[generated]".into()),
            Module::Other("[vdso]".into()),
        ];
        assert_eq!(modules.known, names);
    }

    #[test]
    fn this_very_function_is_in_the_program() {
        let mut modules = Modules::default();
        modules.read();
        let here = this_very_function_is_in_the_program as fn() as usize as u64;
        let place = modules.place(here).expect("it is mapped");
        assert_eq!(modules.known[place.0 as usize], Module::Program);
    }
}
