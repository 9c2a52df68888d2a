//! JavaScript's values.

use std::cell::Cell;
use std::marker::PhantomData;

use rquickjs_sys as qjs;

/// A lifetime that no other can stand for.
pub(crate) type Brand<'js> = PhantomData<Cell<&'js ()>>;

/// A JavaScript value in a [`Scope`](crate::Scope), freed when it is dropped.
pub struct Value<'js> {
    ctx: *mut qjs::JSContext,
    raw: qjs::JSValue,
    brand: Brand<'js>,
}

impl<'js> Value<'js> {
    /// # Safety
    /// The caller owns a reference of `raw`, a value of the live context `ctx`, which is entered
    /// during `'js`.
    #[inline]
    pub(crate) unsafe fn new(ctx: *mut qjs::JSContext, raw: qjs::JSValue) -> Value<'js> {
        Value {
            ctx,
            raw,
            brand: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn raw(&self) -> qjs::JSValue {
        self.raw
    }

    /// Transfers the ownership of the reference.
    #[inline]
    pub(crate) fn into_raw(self) -> qjs::JSValue {
        let raw = self.raw;
        std::mem::forget(self);
        raw
    }

    /// Returns whether it is an object, including arrays and functions.
    pub fn is_object(&self) -> bool {
        // SAFETY: it reads the value's tag.
        unsafe { qjs::JS_IsObject(self.raw) }
    }

    /// Returns whether it is a string.
    pub fn is_string(&self) -> bool {
        // SAFETY: it reads the value's tag.
        unsafe { qjs::JS_IsString(self.raw) }
    }

    /// Returns whether it is `undefined` or `null`.
    pub fn is_nothing(&self) -> bool {
        // SAFETY: it reads the value's tag.
        unsafe { qjs::JS_IsUndefined(self.raw) || qjs::JS_IsNull(self.raw) }
    }

    /// Returns whether it is an array.
    pub fn is_array(&self) -> bool {
        // SAFETY: the value is live.
        unsafe { qjs::JS_IsArray(self.raw) }
    }

    /// Returns whether it can be called.
    pub fn is_function(&self) -> bool {
        // SAFETY: the value is live, and one of the context.
        unsafe { qjs::JS_IsFunction(self.ctx, self.raw) }
    }
}

impl Drop for Value<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it owns one reference of a value of a live context.
        unsafe { qjs::JS_FreeValue(self.ctx, self.raw) }
    }
}
