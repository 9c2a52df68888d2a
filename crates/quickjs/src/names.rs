//! Member names as QuickJS's interned strings (atoms), found without going through QuickJS:
//! documents of a database have few names, and each comes again with each document.

use rquickjs_sys as qjs;

/// Slots of each of the two tables; a name that falls in a taken slot takes it over.
const SLOTS: usize = 1024;
/// Longest name kept.
const LONGEST: usize = 27;

#[derive(Clone, Copy)]
struct Name {
    atom: qjs::JSAtom,
    len: u8,
    text: [u8; LONGEST],
}

#[derive(Clone, Default)]
struct Text {
    atom: qjs::JSAtom,
    /// `"name":` with its escapes.
    json: Vec<u8>,
}

/// Atoms by names and names by atoms. It holds a reference to each atom in it, so that no atom's
/// number is given to another name.
pub(crate) struct Names {
    by_name: Box<[Name]>,
    /// Atoms that lost their place, but may still be in use.
    retired: Vec<qjs::JSAtom>,
    by_atom: Box<[Text]>,
}

fn hash(text: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let word = |bytes: &[u8]| match *bytes {
        [a, b, c, d, e, f, g, h, ..] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => bytes.iter().fold(0, |word, &b| word << 8 | u64::from(b)),
    };
    let first = word(text);
    let last = word(&text[text.len().saturating_sub(8)..]);
    (first ^ last.rotate_left(29) ^ text.len() as u64).wrapping_mul(ODD)
}

impl Names {
    pub fn new() -> Names {
        let name = Name {
            atom: qjs::JS_ATOM_NULL as _,
            len: 0,
            text: [0; LONGEST],
        };
        Names {
            by_name: vec![name; SLOTS].into(),
            retired: Vec::new(),
            by_atom: vec![Text::default(); SLOTS].into(),
        }
    }

    /// Returns the atom of a name given as UTF-8, 0 when memory is out, and the name's hash, which
    /// unlike the atom is never another name's. It stays alive until [`Names::settle`] is called.
    ///
    /// # Safety
    /// `ctx` is a live context of the one runtime that this table is for.
    #[inline]
    pub unsafe fn atom(&mut self, ctx: *mut qjs::JSContext, text: &[u8]) -> (qjs::JSAtom, u64) {
        let kept = text.len() <= LONGEST;
        // A long name replaces the first slot, but is never taken for an existing one.
        let hash = hash(text);
        let slot = if kept {
            (hash >> 54) as usize % SLOTS
        } else {
            0
        };
        let name = &mut self.by_name[slot];
        if kept
            && usize::from(name.len) == text.len()
            && name.atom != 0
            && name.text[..text.len()] == *text
        {
            return (name.atom, hash);
        }
        if name.atom != 0 {
            self.retired.push(name.atom);
        }
        // SAFETY: by the caller. The table takes the returned reference.
        name.atom = unsafe { qjs::JS_NewAtomLen(ctx, text.as_ptr().cast(), text.len() as _) };
        if kept {
            name.len = text.len() as u8;
            name.text[..text.len()].copy_from_slice(text);
        } else {
            name.len = u8::MAX;
        }
        (name.atom, hash)
    }

    /// Frees replaced atoms; those that [`Names::atom`] returned may be freed.
    ///
    /// # Safety
    /// As for [`Names::atom`].
    #[inline]
    pub unsafe fn settle(&mut self, ctx: *mut qjs::JSContext) {
        for atom in self.retired.drain(..) {
            // SAFETY: by the caller; the list has a reference to each.
            unsafe { qjs::JS_FreeAtom(ctx, atom) };
        }
    }

    /// Returns `"name":` of an atom, computed by `text` unless it is cached.
    ///
    /// # Safety
    /// As for [`Names::atom`], and the caller owns a reference to `atom`.
    #[inline]
    pub unsafe fn json(
        &mut self,
        ctx: *mut qjs::JSContext,
        atom: qjs::JSAtom,
        text: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> Option<&[u8]> {
        let slot = &mut self.by_atom[atom as usize % SLOTS];
        if slot.atom != atom || atom == 0 {
            let mut json = std::mem::take(&mut slot.json);
            json.clear();
            let made = text(&mut json);
            // SAFETY: by the caller; the table gets a reference of its own and frees the replaced
            // one.
            unsafe {
                qjs::JS_FreeAtom(ctx, slot.atom);
                slot.atom = 0;
                slot.json = json;
                if !made {
                    return None;
                }
                slot.atom = qjs::JS_DupAtom(ctx, atom);
            }
        }
        Some(&slot.json)
    }

    /// Forgets all names without freeing them, when the heap has been rewound.
    pub fn abandon(&mut self) {
        self.retired.clear();
        let atoms = self.by_name.iter_mut().map(|name| &mut name.atom);
        for atom in atoms.chain(self.by_atom.iter_mut().map(|text| &mut text.atom)) {
            *atom = 0;
        }
    }

    /// Frees all references.
    ///
    /// # Safety
    /// As for [`Names::atom`].
    pub unsafe fn clear(&mut self, ctx: *mut qjs::JSContext) {
        // SAFETY: by the caller.
        unsafe { self.settle(ctx) };
        let atoms = self.by_name.iter_mut().map(|name| &mut name.atom);
        for atom in atoms.chain(self.by_atom.iter_mut().map(|text| &mut text.atom)) {
            // SAFETY: by the caller; each entry has one reference.
            unsafe { qjs::JS_FreeAtom(ctx, *atom) };
            *atom = 0;
        }
    }
}
