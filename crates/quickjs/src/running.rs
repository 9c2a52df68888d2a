//! Finds the running JavaScript functions, for samples of a profiler.
//!
//! QuickJS does not report them while it runs. So its records are followed, by their layout in this
//! version of it, on 64-bit machines, with its assertions on; the tests verify the layout. All
//! reading goes through a probe, and nothing is taken for granted: anything unexpected is left out.

use profiler::{Interpreter, Names, Probe};
use rquickjs_sys as qjs;

/// `JSRuntime.current_stack_frame` and `.atom_array`.
const CURRENT_FRAME: usize = 1280;
const ATOMS: usize = 1104;
/// `JSStackFrame.cur_func`: a value and its tag. `prev_frame` comes first.
const FUNCTION: usize = 8;
const TAG: usize = 16;
/// `JSObject.class_id`, in the third half of this word, and `.u.func.function_bytecode`.
const FLAGS: usize = 16;
const BYTECODE: usize = 48;
/// `JSFunctionBytecode.func_name` and `.line_num`.
const NAME: usize = 36;
const LINE: usize = 92;
/// `JSString`: its length and whether characters have 16 bits, its kind, and the start of its text.
const KIND: usize = 4;
const TEXT: usize = 40;
/// `JS_CLASS_BYTECODE_FUNCTION`.
const BYTECODE_FUNCTION: u64 = 13;
/// Maximum number of functions reported, inner ones first, and bytes of a name.
const DEPTH_MAX: usize = 32;
const NAME_MAX: usize = 48;

/// Returns the interpreter of a runtime.
pub(crate) fn interpreter(runtime: *mut qjs::JSRuntime) -> Interpreter {
    Interpreter {
        state: runtime.expose_provenance(),
        functions,
    }
}

fn functions(runtime: usize, probe: &mut Probe, names: &mut Names<'_>) {
    let at = |base: usize, offset: usize| base.wrapping_add(offset);
    let frame = probe.word(at(runtime, CURRENT_FRAME));
    let atoms = probe.word(at(runtime, ATOMS));
    let (Some(frame), Some(atoms)) = (frame, atoms) else {
        return;
    };
    let mut frame = frame as usize;
    for _ in 0..DEPTH_MAX {
        if frame == 0 || function(frame, atoms as usize, probe, names).is_none() {
            return;
        }
        match probe.word(frame) {
            Some(next) => frame = next as usize,
            None => return,
        }
    }
}

/// Writes the name of a frame's function, if it is one of JavaScript; `None` where there is no
/// frame, or no room.
fn function(frame: usize, atoms: usize, probe: &mut Probe, names: &mut Names<'_>) -> Option<()> {
    let at = |base: u64, offset: usize| (base as usize).wrapping_add(offset);
    let object = probe.word(at(frame as u64, FUNCTION))?;
    let tag = probe.word(at(frame as u64, TAG))?;
    if tag as i32 != qjs::JS_TAG_OBJECT {
        return Some(());
    }
    let class = probe.word(at(object, FLAGS))? >> 16 & 0xffff;
    if class != BYTECODE_FUNCTION {
        return Some(());
    }
    let bytecode = probe.word(at(object, BYTECODE))?;
    let name = probe.half(at(bytecode, NAME))?;
    let mut bytes = [0; NAME_MAX];
    let mut len = text(name, atoms, probe, &mut bytes);
    if len == 0 {
        // As in stack traces, with the line by which it is found.
        len = put(&mut bytes, 0, b"(anonymous:");
        len = decimal(&mut bytes, len, probe.half(at(bytecode, LINE))?);
        len = put(&mut bytes, len, b")");
    }
    names.push(bytes.get(..len)?).then_some(())
}

/// Writes the text of an atom; 0 if it is not a text, or empty.
fn text(atom: u32, atoms: usize, probe: &mut Probe, to: &mut [u8; NAME_MAX]) -> usize {
    let read = |probe: &mut Probe, to: &mut [u8; NAME_MAX]| {
        // The highest bit marks a number.
        if atom >> 31 != 0 || atom == 0 {
            return None;
        }
        let string = probe.word(atoms.wrapping_add(atom as usize * 8))? as usize;
        let head = probe.half(string)?;
        let is_plain = probe.half(string.wrapping_add(KIND))? >> 28 & 3 == 0;
        let (len, is_wide) = ((head & 0x7fff_ffff) as usize, head >> 31 != 0);
        if !is_plain || is_wide {
            return None;
        }
        let len = len.min(NAME_MAX);
        for (n, to) in to.iter_mut().take(len).enumerate() {
            let at = string.wrapping_add(TEXT).wrapping_add(n);
            let byte = (probe.word(at & !7)? >> ((at & 7) * 8)) as u8;
            // Characters are Latin-1. Characters other than ASCII, and those that separate names,
            // are not shown.
            *to = if byte.is_ascii_graphic() { byte } else { b'?' };
        }
        Some(len)
    };
    read(probe, to).unwrap_or(0)
}

/// Appends bytes as far as there is room; returns their end.
fn put(to: &mut [u8; NAME_MAX], at: usize, bytes: &[u8]) -> usize {
    let mut end = at;
    for (to, from) in to.iter_mut().skip(at).zip(bytes) {
        *to = *from;
        end += 1;
    }
    end
}

fn decimal(to: &mut [u8; NAME_MAX], at: usize, number: u32) -> usize {
    let (mut end, mut divisor) = (at, 1_000_000_000);
    while divisor > 0 {
        let digit = number / divisor % 10;
        if digit > 0 || end > at || divisor == 1 {
            end = put(to, end, &[b'0' + digit as u8]);
        }
        divisor /= 10;
    }
    end
}
