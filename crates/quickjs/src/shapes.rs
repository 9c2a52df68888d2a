//! Keeps QuickJS's hidden classes ("shapes") of documents alive between documents. An object that
//! gets its members one by one passes through the shapes of all its prefixes. QuickJS finds a shape
//! again only while an object has it, and otherwise rebuilds it, member by member, which costs more
//! than everything else about an object.

use rquickjs_sys as qjs;

/// Slots for known shapes.
const SLOTS: usize = 8192;
/// Maximum number of shapes kept; beyond, all are dropped, and those in use return.
const KEPT_MAX: usize = 2048;
/// Longest prefix that is kept: objects with many members are rather maps from data than records.
const MEMBERS_MAX: usize = 64;

/// The state after the names of an object's members so far.
#[derive(Clone, Copy)]
pub(crate) struct Prefix {
    hash: u64,
    members: usize,
}

impl Prefix {
    /// Starts for an object whose members all get these flags.
    pub fn new(flags: u32) -> Prefix {
        Prefix {
            hash: 1 << 40 | u64::from(flags) << 1,
            members: 0,
        }
    }

    /// Takes the hash of one more name.
    #[inline]
    pub fn push(&mut self, name: u64) {
        self.hash = (self.hash ^ name).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hash ^= self.hash >> 29;
        self.members += 1;
    }
}

/// An object for each shape that came twice.
pub(crate) struct Shapes {
    /// Hashes of prefixes; the lowest bit is set if the shape is kept.
    known: Box<[u64]>,
    kept: Vec<qjs::JSValue>,
}

impl Shapes {
    pub fn new() -> Shapes {
        Shapes {
            known: vec![0; SLOTS].into(),
            kept: Vec::new(),
        }
    }

    /// Returns whether an object that has just reached this prefix should be passed to
    /// [`Shapes::keep`].
    #[inline]
    pub fn is_wanted(&mut self, prefix: Prefix) -> bool {
        let known = &mut self.known[(prefix.hash >> 50) as usize % SLOTS];
        if *known == prefix.hash | 1 || prefix.members > MEMBERS_MAX {
            return false;
        }
        if *known == prefix.hash & !1 {
            *known |= 1;
            return true;
        }
        *known = prefix.hash & !1;
        false
    }

    /// Keeps the shape of an object with these members, all with these flags, by an object that
    /// gets the same ones.
    ///
    /// # Safety
    /// `ctx` is a live context entered by this thread, of the runtime that all kept objects are of;
    /// the atoms are live.
    #[cold]
    pub unsafe fn keep(&mut self, ctx: *mut qjs::JSContext, names: &[qjs::JSAtom], flags: u32) {
        if self.kept.len() == KEPT_MAX {
            // SAFETY: by the caller.
            unsafe { self.clear(ctx) };
        }
        // SAFETY: by the caller. A failure leaves a pending exception, which is freed; the object
        // is kept or freed.
        unsafe {
            let object = qjs::JS_NewObject(ctx);
            let mut failed = qjs::JS_IsException(object);
            for &name in names {
                failed = failed
                    || qjs::JS_DefinePropertyValue(ctx, object, name, qjs::JS_NULL, flags as i32)
                        < 0;
            }
            if failed {
                qjs::JS_FreeValue(ctx, qjs::JS_GetException(ctx));
                qjs::JS_FreeValue(ctx, object);
            } else {
                self.kept.push(object);
            }
        }
    }

    /// Forgets all, as [`Names::abandon`](crate::names::Names::abandon).
    pub fn abandon(&mut self) {
        self.known.fill(0);
        self.kept.clear();
    }

    /// Drops all.
    ///
    /// # Safety
    /// As for [`Shapes::keep`].
    pub unsafe fn clear(&mut self, ctx: *mut qjs::JSContext) {
        self.known.fill(0);
        for object in self.kept.drain(..) {
            // SAFETY: by the caller; the list has a reference to each.
            unsafe { qjs::JS_FreeValue(ctx, object) };
        }
    }
}
