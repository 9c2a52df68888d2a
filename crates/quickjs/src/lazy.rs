//! Documents as JavaScript objects that are built from their text only as far as they are accessed.
//!
//! An object of a document has a class of our own, whose members are not QuickJS's properties but a
//! table that is filled as members are accessed. To JavaScript it is a frozen plain object: it has
//! the prototype of those, cannot be extended, and its members can be neither changed nor deleted.
//! So the text stays valid for as long as the object lives, and an emitted object is copied from
//! it. Arrays are QuickJS's own, built whole when they are accessed, and could be changed: after
//! that a document is written from its values where they exist.
//!
//! All memory, including the text's, is QuickJS's, so that it counts against the limit and is freed
//! with the runtime.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use rquickjs_sys as qjs;

use crate::control::{control, control_of};
use crate::from_json::{BuildError, Builder, NO_INDEX, Reader};
use crate::native::stop;
use crate::realm::state;
use crate::runtime::Runtime;

/// Members beyond which they are searched through a sorted list.
const LINEAR_MAX: usize = 24;

/// Number of bytes after which reading the clock costs little.
const LONG_SCAN: u32 = 4096;

/// A document's text, shared by its objects. The bytes follow.
pub(crate) struct Text {
    references: Cell<usize>,
    /// Whether one of its arrays has been built, so that JavaScript may have changed it.
    pub exposed: Cell<bool>,
    /// Whether objects in it are records, built immediately, except those marked as whole.
    pub records: bool,
    len: usize,
}

impl Text {
    /// Copies a text to QuickJS's heap; `None` with an exception pending when there is no memory.
    /// The caller owns a reference.
    ///
    /// # Safety
    /// `ctx` is a live context entered by this thread.
    pub unsafe fn new(
        ctx: *mut qjs::JSContext,
        json: &[u8],
        records: bool,
    ) -> Option<NonNull<Text>> {
        // SAFETY: by the caller; the written bytes fit the allocation, which is aligned for any
        // type without vectors.
        unsafe {
            let size = size_of::<Text>() + json.len();
            let text = qjs::js_malloc(ctx, size as _).cast::<Text>();
            if !text.is_null() {
                text.write(Text {
                    references: Cell::new(1),
                    exposed: Cell::new(false),
                    records,
                    len: json.len(),
                });
                ptr::copy_nonoverlapping(json.as_ptr(), text.add(1).cast(), json.len());
            }
            NonNull::new(text)
        }
    }

    /// # Safety
    /// `text` is live, and stays so for `'a`. The bytes are not changed.
    pub unsafe fn bytes<'a>(text: NonNull<Text>) -> &'a [u8] {
        // SAFETY: by the caller; the bytes follow.
        unsafe { std::slice::from_raw_parts(text.add(1).as_ptr().cast(), text.as_ref().len) }
    }

    /// Releases a reference.
    ///
    /// # Safety
    /// The caller owns one, of a text of this runtime.
    pub unsafe fn release(runtime: *mut qjs::JSRuntime, text: NonNull<Text>) {
        // SAFETY: by the caller.
        unsafe {
            let left = text.as_ref().references.get() - 1;
            text.as_ref().references.set(left);
            if left == 0 {
                qjs::js_free_rt(runtime, text.as_ptr().cast());
            }
        }
    }
}

/// A member that was found in the text.
pub(crate) struct LazyMember {
    /// Owned.
    pub atom: qjs::JSAtom,
    pub start: u32,
    pub end: u32,
    /// The array index that the name is, or [`NO_INDEX`].
    index: u32,
    /// Owned; `JS_UNINITIALIZED` until it is accessed.
    pub value: qjs::JSValue,
}

/// The state of an object.
pub(crate) struct LazyNode {
    /// A reference is owned.
    pub text: NonNull<Text>,
    pub start: u32,
    pub end: u32,
    /// Where the scan continues; `end` when all members are known.
    at: u32,
    count: u32,
    capacity: u32,
    members: *mut LazyMember,
    /// Indexes of all members, in the order of their atoms. Null for few members.
    index: *mut u32,
}

/// Registers the class in a runtime, which calls what is here for its objects.
pub(crate) fn register(runtime: &Runtime) -> Option<qjs::JSClassID> {
    struct Shared(qjs::JSClassExoticMethods);
    // SAFETY: it has function pointers only.
    unsafe impl Sync for Shared {}
    static EXOTIC: Shared = Shared(qjs::JSClassExoticMethods {
        get_own_property: Some(get_own_property),
        get_own_property_names: Some(get_own_property_names),
        delete_property: Some(delete_property),
        define_own_property: Some(define_own_property),
        has_property: None,
        get_property: None,
        set_property: None,
    });
    let definition = qjs::JSClassDef {
        class_name: c"Object".as_ptr(),
        finalizer: Some(finalize),
        gc_mark: Some(mark),
        call: None,
        exotic: (&raw const EXOTIC.0).cast_mut(),
    };
    // SAFETY: the runtime is live. It copies the definition and never writes to the methods, which
    // are static.
    unsafe {
        let mut class = 0;
        qjs::JS_NewClassID(runtime.raw(), &raw mut class);
        (qjs::JS_NewClass(runtime.raw(), class, &raw const definition) >= 0).then_some(class)
    }
}

/// Returns an object for a part of a text, which is a JSON object, or an exception. The caller owns
/// it.
///
/// # Safety
/// `ctx` is a live context entered by this thread, `text` a live text of its runtime, `start..end`
/// within it.
pub(crate) unsafe fn object(
    ctx: *mut qjs::JSContext,
    text: NonNull<Text>,
    start: usize,
    end: usize,
) -> qjs::JSValue {
    // SAFETY: by the caller. The object owns the node, and the node a reference to the text.
    unsafe {
        let class = control(ctx).lazy_class.get();
        #[cfg(test)]
        if control(ctx).stress.get() {
            qjs::JS_SetGCThreshold(qjs::JS_GetRuntime(ctx), 0);
        }
        let object = qjs::JS_NewObjectClass(ctx, class);
        if qjs::JS_IsException(object) {
            return object;
        }
        let node = qjs::js_malloc(ctx, size_of::<LazyNode>() as _).cast::<LazyNode>();
        if node.is_null() {
            qjs::JS_FreeValue(ctx, object);
            return qjs::JS_EXCEPTION;
        }
        let references = &text.as_ref().references;
        references.set(references.get() + 1);
        node.write(LazyNode {
            text,
            start: start as u32,
            end: end as u32,
            at: start as u32,
            count: 0,
            capacity: 0,
            members: ptr::null_mut(),
            index: ptr::null_mut(),
        });
        qjs::JS_SetOpaque(object, node.cast());
        qjs::JS_PreventExtensions(ctx, object);
        object
    }
}

/// Returns the node of an object of our class, `None` of any other value.
///
/// # Safety
/// `value` is live, `class` is that of its runtime. The node lives as long as the object.
pub(crate) unsafe fn node(value: qjs::JSValue, class: qjs::JSClassID) -> Option<NonNull<LazyNode>> {
    // SAFETY: by the caller.
    NonNull::new(unsafe { qjs::JS_GetOpaque(value, class).cast() })
}

impl LazyNode {
    /// Returns the members known so far.
    pub fn members(&self) -> &[LazyMember] {
        if self.count == 0 {
            return &[];
        }
        // SAFETY: the table has `count` members, and is not changed while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.members, self.count as usize) }
    }

    /// Returns whether a member's name is a number, which changes their order.
    pub fn has_numbers(&self) -> bool {
        self.members().iter().any(|member| member.index != NO_INDEX)
    }

    /// Makes sure that all members are known. On an error an exception is pending.
    ///
    /// # Safety
    /// `ctx` is a live context entered by this thread, of the node's runtime.
    pub unsafe fn complete(&mut self, ctx: *mut qjs::JSContext) -> Result<(), PendingException> {
        // SAFETY: by the caller.
        unsafe { self.find(ctx, qjs::JS_ATOM_NULL as _) }.map(drop)
    }

    /// Returns the index of the member with this name; looks no further in the text than to there.
    #[inline]
    unsafe fn find(
        &mut self,
        ctx: *mut qjs::JSContext,
        atom: qjs::JSAtom,
    ) -> Result<Option<usize>, PendingException> {
        if self.index.is_null() {
            let known = self.members().iter().position(|known| known.atom == atom);
            if known.is_some() || self.at == self.end {
                return Ok(known);
            }
            // SAFETY: by the caller.
            unsafe { self.scan(ctx, atom) }?;
            let last = self.count.wrapping_sub(1) as usize;
            if self.index.is_null() {
                let found = self
                    .members()
                    .get(last)
                    .is_some_and(|last| last.atom == atom);
                return Ok(found.then_some(last));
            }
        }
        // SAFETY: the index has `count` entries once it exists.
        let index = unsafe { std::slice::from_raw_parts(self.index, self.count as usize) };
        let members = self.members();
        let found = index.binary_search_by_key(&atom, |&at| members[at as usize].atom);
        Ok(found.ok().map(|found| index[found] as usize))
    }

    /// Reads on until this name has come, or to the end.
    unsafe fn scan(
        &mut self,
        ctx: *mut qjs::JSContext,
        atom: qjs::JSAtom,
    ) -> Result<(), PendingException> {
        let before = self.at;
        // SAFETY: by the caller. The state is borrowed for the time of this function, which calls
        // no JavaScript; texts are not changed.
        unsafe {
            let Some(mut state) = state(ctx) else {
                return Err(closed(ctx));
            };
            let json = Text::bytes(self.text);
            let mut builder = Builder {
                ctx,
                state: state.as_mut(),
                document: Some(self.text),
                records: false,
            };
            let json = &json[..self.end as usize];
            let mut reader = Reader::new(&mut builder, json, self.at as usize);
            while self.at < self.end {
                match reader.member(self.at == self.start) {
                    Ok(Some((name, start, end))) => {
                        self.at = reader.at as u32;
                        let index = reader.index;
                        self.push(ctx, name, index, start..end)?;
                        // Many members are better found by an index, which needs all.
                        if name == atom && self.count as usize <= LINEAR_MAX {
                            return Ok(());
                        }
                    }
                    Ok(None) => self.at = self.end,
                    Err(error) => return Err(throw(ctx, error)),
                }
            }
            state.as_mut().names.settle(ctx);
            // Walking down a deep document scans the same text repeatedly, in few steps of
            // JavaScript.
            if self.at - before >= LONG_SCAN && control(ctx).must_stop() {
                stop(ctx);
                return Err(PendingException);
            }
            if self.count as usize > LINEAR_MAX {
                self.make_index(ctx)?;
            }
        }
        Ok(())
    }

    unsafe fn push(
        &mut self,
        ctx: *mut qjs::JSContext,
        atom: qjs::JSAtom,
        index: u32,
        value: std::ops::Range<usize>,
    ) -> Result<(), PendingException> {
        // SAFETY: by the caller. The table has room for `capacity` members.
        unsafe {
            if self.count == self.capacity {
                let capacity = (self.capacity * 2).max(8);
                let size = capacity as usize * size_of::<LazyMember>();
                let members = qjs::js_realloc(ctx, self.members.cast(), size as _);
                if members.is_null() {
                    return Err(PendingException);
                }
                self.members = members.cast();
                self.capacity = capacity;
            }
            self.members.add(self.count as usize).write(LazyMember {
                atom: qjs::JS_DupAtom(ctx, atom),
                start: value.start as u32,
                end: value.end as u32,
                index,
                value: qjs::JS_UNINITIALIZED,
            });
        }
        self.count += 1;
        Ok(())
    }

    #[cold]
    unsafe fn make_index(&mut self, ctx: *mut qjs::JSContext) -> Result<(), PendingException> {
        let count = self.count as usize;
        // SAFETY: by the caller; the list gets `count` entries before it is used as such.
        unsafe {
            let index = qjs::js_malloc(ctx, (count * size_of::<u32>()) as _).cast::<u32>();
            if index.is_null() {
                return Err(PendingException);
            }
            for at in 0..count {
                index.add(at).write(at as u32);
            }
            let members = self.members();
            let sorted = std::slice::from_raw_parts_mut(index, count);
            sorted.sort_unstable_by_key(|&at| members[at as usize].atom);
            self.index = index;
        }
        Ok(())
    }

    /// Returns the value of a member, built if needed; the caller does not own it.
    ///
    /// # Safety
    /// As for [`LazyNode::complete`]; `node` is live, `at` the index of a known member.
    pub unsafe fn value(
        node: NonNull<LazyNode>,
        ctx: *mut qjs::JSContext,
        at: usize,
    ) -> Result<qjs::JSValue, PendingException> {
        // SAFETY: by the caller. Building creates QuickJS's own values, and nodes of their own; it
        // calls no JavaScript, but may trigger a garbage collection, which reads this node: no
        // reference to it is held meanwhile.
        unsafe {
            let member = (*node.as_ptr()).members.add(at);
            let LazyMember { start, end, .. } = *member;
            if qjs::JS_IsUninitialized((*member).value) {
                let text = (*node.as_ptr()).text;
                let Some(mut state) = state(ctx) else {
                    return Err(closed(ctx));
                };
                let mut builder = Builder {
                    ctx,
                    state: state.as_mut(),
                    document: Some(text),
                    records: text.as_ref().records,
                };
                let json = &Text::bytes(text)[..end as usize];
                let built = builder.build(json, start as usize);
                (*member).value = built.map_err(|error| throw(ctx, error))?;
            }
            Ok((*member).value)
        }
    }
}

/// An exception is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingException;

#[cold]
unsafe fn throw(ctx: *mut qjs::JSContext, error: BuildError) -> PendingException {
    let message = match error {
        BuildError::Exception => return PendingException,
        BuildError::Syntax => c"the document is not JSON",
        BuildError::Depth => c"the document nests too deeply",
    };
    // SAFETY: the context is live, the format has no arguments.
    unsafe {
        control(ctx).too_deep.set(error == BuildError::Depth);
        qjs::JS_ThrowTypeError(ctx, message.as_ptr());
    }
    PendingException
}

/// A job that a promise left behind in a closed context accesses a document.
#[cold]
unsafe fn closed(ctx: *mut qjs::JSContext) -> PendingException {
    // SAFETY: the context is live, the format has no arguments.
    unsafe { qjs::JS_ThrowTypeError(ctx, c"the context was closed".as_ptr()) };
    PendingException
}

unsafe extern "C" fn get_own_property(
    ctx: *mut qjs::JSContext,
    descriptor: *mut qjs::JSPropertyDescriptor,
    object: qjs::JSValue,
    atom: qjs::JSAtom,
) -> c_int {
    // SAFETY: QuickJS calls it with a live context and a live object of our class. The node is
    // borrowed for the time of this function, which calls no JavaScript. The value that is given
    // away gets a reference.
    unsafe {
        let Some(mut node) = node(object, control(ctx).lazy_class.get()) else {
            return 0;
        };
        let at = match node.as_mut().find(ctx, atom) {
            Ok(Some(at)) => at,
            Ok(None) => return 0,
            Err(PendingException) => return -1,
        };
        if descriptor.is_null() {
            return 1;
        }
        let Ok(value) = LazyNode::value(node, ctx, at) else {
            return -1;
        };
        descriptor.write(qjs::JSPropertyDescriptor {
            flags: qjs::JS_PROP_ENUMERABLE as c_int,
            value: qjs::JS_DupValue(ctx, value),
            getter: qjs::JS_UNDEFINED,
            setter: qjs::JS_UNDEFINED,
        });
    }
    1
}

unsafe extern "C" fn get_own_property_names(
    ctx: *mut qjs::JSContext,
    names: *mut *mut qjs::JSPropertyEnum,
    count: *mut u32,
    object: qjs::JSValue,
) -> c_int {
    // SAFETY: as in `get_own_property`. QuickJS frees the list and the references in it.
    unsafe {
        names.write(ptr::null_mut());
        count.write(0);
        let Some(mut node) = node(object, control(ctx).lazy_class.get()) else {
            return 0;
        };
        let node = node.as_mut();
        if node.complete(ctx).is_err() {
            return -1;
        }
        let members = node.members();
        let size = members.len().max(1) * size_of::<qjs::JSPropertyEnum>();
        let list = qjs::js_malloc(ctx, size as _).cast::<qjs::JSPropertyEnum>();
        if list.is_null() {
            return -1;
        }
        // Array indexes come first, in order, then the others in the order of the text.
        let mut order: Vec<&LazyMember> = members.iter().collect();
        if node.has_numbers() {
            order.sort_by_key(|member| member.index);
        }
        for (at, member) in order.into_iter().enumerate() {
            list.add(at).write(qjs::JSPropertyEnum {
                is_enumerable: true,
                atom: qjs::JS_DupAtom(ctx, member.atom),
            });
        }
        names.write(list);
        count.write(members.len() as u32);
    }
    0
}

unsafe extern "C" fn delete_property(
    ctx: *mut qjs::JSContext,
    object: qjs::JSValue,
    atom: qjs::JSAtom,
) -> c_int {
    // SAFETY: as in `get_own_property`.
    unsafe {
        let node = node(object, control(ctx).lazy_class.get());
        match node.map(|mut node| node.as_mut().find(ctx, atom)) {
            Some(Ok(Some(_))) => 0,
            Some(Err(PendingException)) => -1,
            _ => 1,
        }
    }
}

/// Succeeds where nothing changes, as for any frozen object.
unsafe extern "C" fn define_own_property(
    ctx: *mut qjs::JSContext,
    object: qjs::JSValue,
    atom: qjs::JSAtom,
    value: qjs::JSValue,
    _getter: qjs::JSValue,
    _setter: qjs::JSValue,
    flags: c_int,
) -> c_int {
    let flags = flags as u32;
    let asks = |what: u32| flags & what != 0;
    // SAFETY: as in `get_own_property`.
    unsafe {
        let node = node(object, control(ctx).lazy_class.get());
        let found = node.map(|mut node| {
            let at = node.as_mut().find(ctx, atom)?;
            at.map(|at| LazyNode::value(node, ctx, at)).transpose()
        });
        let known = match found {
            Some(Ok(known)) => known,
            Some(Err(PendingException)) => return -1,
            None => None,
        };
        let same = known.is_some_and(|known| {
            let other_value =
                asks(qjs::JS_PROP_HAS_VALUE) && !qjs::JS_IsSameValue(ctx, known, value);
            let hides = asks(qjs::JS_PROP_HAS_ENUMERABLE) && !asks(qjs::JS_PROP_ENUMERABLE);
            let frees = (asks(qjs::JS_PROP_HAS_CONFIGURABLE) && asks(qjs::JS_PROP_CONFIGURABLE))
                || (asks(qjs::JS_PROP_HAS_WRITABLE) && asks(qjs::JS_PROP_WRITABLE));
            let accessor = asks(qjs::JS_PROP_HAS_GET | qjs::JS_PROP_HAS_SET);
            !(other_value || hides || frees || accessor)
        });
        if same {
            return 1;
        }
        if asks(qjs::JS_PROP_THROW) {
            qjs::JS_ThrowTypeError(ctx, c"documents cannot be changed".as_ptr());
            return -1;
        }
    }
    0
}

unsafe extern "C" fn mark(
    runtime: *mut qjs::JSRuntime,
    object: qjs::JSValue,
    mark: qjs::JS_MarkFunc,
) {
    // SAFETY: QuickJS calls it with a live object of our class.
    unsafe {
        let class = control_of(runtime).lazy_class.get();
        if let Some(node) = node(object, class) {
            for member in node.as_ref().members() {
                qjs::JS_MarkValue(runtime, member.value, mark);
            }
        }
    }
}

unsafe extern "C" fn finalize(runtime: *mut qjs::JSRuntime, object: qjs::JSValue) {
    // SAFETY: QuickJS calls it once for each object, when nothing refers to it any more. All that
    // the node owns is freed once.
    unsafe {
        let class = control_of(runtime).lazy_class.get();
        let Some(node) = node(object, class) else {
            return;
        };
        let node = node.as_ptr();
        for member in (*node).members() {
            qjs::JS_FreeAtomRT(runtime, member.atom);
            qjs::JS_FreeValueRT(runtime, member.value);
        }
        qjs::js_free_rt(runtime, (*node).members.cast::<c_void>());
        qjs::js_free_rt(runtime, (*node).index.cast::<c_void>());
        Text::release(runtime, (*node).text);
        qjs::js_free_rt(runtime, node.cast());
    }
}
