//! A context of QuickJS, and what building and writing values in it need.

use std::cell::RefCell;
use std::ptr::{self, NonNull};

use rquickjs_sys as qjs;

use crate::control::Control;
use crate::limits::Limit;
use crate::names::Names;
use crate::runtime::Runtime;
use crate::shapes::Shapes;

/// State of building and writing values, kept between values.
pub(crate) struct State {
    pub names: Names,
    pub shapes: Shapes,
    /// Names of members of objects that are not complete. The table of names keeps them alive while
    /// building.
    pub members: Vec<qjs::JSAtom>,
    /// Elements of arrays that are not complete; owned values.
    pub elements: Vec<qjs::JSValue>,
    /// Text of a string with escapes.
    pub scratch: Vec<u8>,
}

/// One that is dropped without [`Realm::close`] is freed with its runtime, which outlives it.
pub(crate) struct Realm {
    raw: NonNull<qjs::JSContext>,
    control: NonNull<Control>,
    /// Boxed, and reached through the context by QuickJS's callbacks: so no reference to it is held
    /// while QuickJS may call.
    pub state: NonNull<State>,
    pub to_json: qjs::JSAtom,
    pub class_object: qjs::JSClassID,
    pub class_array: qjs::JSClassID,
    /// `Object.prototype`, owned.
    pub object_prototype: qjs::JSValue,
    /// Values for later scopes, owned.
    pub kept: RefCell<Vec<qjs::JSValue>>,
}

impl Realm {
    /// Returns a new context in a runtime that this thread has entered.
    pub fn new(runtime: &Runtime) -> Result<Realm, Limit> {
        // SAFETY: the runtime is live. Everything created here and not freed on a failure is freed
        // with the runtime.
        unsafe {
            let raw = NonNull::new(qjs::JS_NewContext(runtime.raw())).ok_or(Limit::Memory)?;
            let ctx = raw.as_ptr();
            let to_json = qjs::JS_NewAtomLen(ctx, c"toJSON".as_ptr(), 6);
            let object = qjs::JS_NewObject(ctx);
            let array = qjs::JS_NewArray(ctx);
            let failed = to_json == 0 || qjs::JS_IsException(object) || qjs::JS_IsException(array);
            let (class_object, class_array) =
                (qjs::JS_GetClassID(object), qjs::JS_GetClassID(array));
            qjs::JS_FreeValue(ctx, object);
            qjs::JS_FreeValue(ctx, array);
            if failed {
                return Err(Limit::Memory);
            }
            // Documents' objects have the prototype of plain objects; `JS_SetClassProto` takes a
            // reference over.
            let object_prototype = qjs::JS_GetClassProto(ctx, class_object);
            let class_lazy = runtime.control().lazy_class.get();
            let again = qjs::JS_DupValue(ctx, object_prototype);
            qjs::JS_SetClassProto(ctx, class_lazy, again);
            let state = NonNull::from(Box::leak(Box::new(State {
                names: Names::new(),
                shapes: Shapes::new(),
                members: Vec::new(),
                elements: Vec::new(),
                scratch: Vec::new(),
            })));
            qjs::JS_SetContextOpaque(ctx, state.as_ptr().cast());
            Ok(Realm {
                raw,
                control: NonNull::from(runtime.control()),
                state,
                to_json,
                class_object,
                class_array,
                object_prototype,
                kept: RefCell::default(),
            })
        }
    }

    #[inline]
    pub fn ctx(&self) -> *mut qjs::JSContext {
        self.raw.as_ptr()
    }

    #[inline]
    pub fn control(&self) -> &Control {
        // SAFETY: the runtime, which owns it, outlives the context.
        unsafe { self.control.as_ref() }
    }

    /// Frees the context before its runtime is.
    ///
    /// # Safety
    /// There are no values of it, and nothing runs in it.
    pub unsafe fn close(self) {
        let ctx = self.ctx();
        // SAFETY: the context is live and owns each of these once; it is not used afterwards. Its
        // pending jobs keep it in memory: functions that they call find no state any more.
        unsafe {
            for value in self.kept.take() {
                qjs::JS_FreeValue(ctx, value);
            }
            self.forget();
            qjs::JS_FreeValue(ctx, self.object_prototype);
            qjs::JS_FreeAtom(ctx, self.to_json);
            qjs::JS_SetContextOpaque(ctx, ptr::null_mut());
            qjs::JS_FreeContext(ctx);
        }
    }

    /// Releases everything that building and writing values keep in the heap.
    ///
    /// # Safety
    /// Nothing runs in the context, and no value is being built.
    pub unsafe fn forget(&self) {
        // SAFETY: by the caller; nothing else refers to the state now.
        unsafe {
            let state = &mut *self.state.as_ptr();
            state.names.clear(self.ctx());
            state.shapes.clear(self.ctx());
        }
    }

    /// Forgets everything without freeing it, when the heap is about to be rewound or dropped.
    ///
    /// # Safety
    /// As for [`Realm::forget`].
    pub unsafe fn abandon(&self) {
        // SAFETY: by the caller; nothing else refers to the state now.
        let state = unsafe { &mut *self.state.as_ptr() };
        state.names.abandon();
        state.shapes.abandon();
        state.members.clear();
        state.elements.clear();
    }
}

impl Drop for Realm {
    fn drop(&mut self) {
        // SAFETY: it was leaked from a box by `new`. Nothing runs in the context any more, and code
        // that may run in a closed one does not find it.
        drop(unsafe { Box::from_raw(self.state.as_ptr()) });
    }
}

/// Returns the state of a context; `None` for a closed one.
///
/// # Safety
/// `ctx` is a live context of a [`Realm`]. The caller must not use a reference to it while QuickJS
/// may call.
#[inline]
pub(crate) unsafe fn state(ctx: *mut qjs::JSContext) -> Option<NonNull<State>> {
    // SAFETY: by the caller.
    NonNull::new(unsafe { qjs::JS_GetContextOpaque(ctx).cast() })
}
