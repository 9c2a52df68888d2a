//! JSON text of Python's values.
//!
//! `json.dumps` would turn other keys into strings, and NaN into invalid JSON. Here both are
//! refused, with their path. Integers of any size and floats (`1.0`) keep their kind.

use document::json::{DEPTH_MAX, write_float};
use document::write_json_string;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

/// A step on the way to a value.
enum Step<'py> {
    Key(Bound<'py, PyAny>),
    Index(usize),
}

/// Writes a value, and knows its path for an error.
struct Text<'py> {
    out: Vec<u8>,
    way: Vec<Step<'py>>,
}

impl<'py> Text<'py> {
    fn place(&self) -> String {
        let mut place = String::new();
        for step in &self.way {
            match step {
                Step::Key(key) => place.push_str(&format!(".{key}")),
                Step::Index(index) => place.push_str(&format!("[{index}]")),
            }
        }
        match place.is_empty() {
            true => "the value itself".to_owned(),
            false => place,
        }
    }

    fn refuse_type(&self, value: &Bound<'py, PyAny>) -> PyErr {
        let kind = value.get_type().name();
        let kind = kind.map_or_else(|_| "this".to_owned(), |name| name.to_string());
        PyTypeError::new_err(format!("{kind} is not JSON: {}", self.place()))
    }

    fn string(&mut self, value: &Bound<'py, PyString>) -> PyResult<()> {
        let text = value.to_str().map_err(|_| {
            PyValueError::new_err(format!(
                "a string with half of a surrogate pair is not JSON: {}",
                self.place()
            ))
        })?;
        write_json_string(text, &mut self.out);
        Ok(())
    }

    fn value(&mut self, value: &Bound<'py, PyAny>) -> PyResult<()> {
        if let Ok(text) = value.cast::<PyString>() {
            return self.string(text);
        }
        if let Ok(object) = value.cast::<PyDict>() {
            return self.object(object);
        }
        if value.is_none() {
            self.out.extend_from_slice(b"null");
        } else if let Ok(is) = value.cast::<PyBool>() {
            let word: &[u8] = match is.is_true() {
                true => b"true",
                false => b"false",
            };
            self.out.extend_from_slice(word);
        } else if let Ok(integer) = value.cast::<PyInt>() {
            self.integer(integer)?;
        } else if let Ok(float) = value.cast::<PyFloat>() {
            self.float(float.value())?;
        } else if let Ok(list) = value.cast::<PyList>() {
            self.list(list.iter())?;
        } else if let Ok(list) = value.cast::<PyTuple>() {
            self.list(list.iter())?;
        } else {
            return Err(self.refuse_type(value));
        }
        Ok(())
    }

    fn integer(&mut self, value: &Bound<'py, PyInt>) -> PyResult<()> {
        if let Ok(small) = value.extract::<i64>() {
            self.out.extend_from_slice(small.to_string().as_bytes());
            return Ok(());
        }
        // Of `int` itself: a class that derives from it may show itself otherwise.
        let shown = value.py().get_type::<PyInt>();
        let text = shown.call_method1("__repr__", (value,))?;
        let text = text.cast_into::<PyString>()?;
        self.out.extend_from_slice(text.to_str()?.as_bytes());
        Ok(())
    }

    fn float(&mut self, value: f64) -> PyResult<()> {
        if !value.is_finite() {
            return Err(PyValueError::new_err(format!(
                "{} is not JSON: {}",
                if value.is_nan() { "NaN" } else { "an infinity" },
                self.place()
            )));
        }
        // The sign of zero counts for the revision.
        match value == 0.0 && value.is_sign_negative() {
            true => self.out.extend_from_slice(b"-0.0"),
            false => write_float(value, &mut self.out),
        }
        Ok(())
    }

    fn list(&mut self, values: impl Iterator<Item = Bound<'py, PyAny>>) -> PyResult<()> {
        self.go_deeper()?;
        self.out.push(b'[');
        for (index, value) in values.enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            self.way.push(Step::Index(index));
            self.value(&value)?;
            self.way.pop();
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, members: &Bound<'py, PyDict>) -> PyResult<()> {
        self.go_deeper()?;
        self.out.push(b'{');
        for (index, (key, value)) in members.iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            let Ok(name) = key.cast::<PyString>() else {
                let kind = key.get_type().name()?;
                return Err(PyTypeError::new_err(format!(
                    "keys of JSON objects are strings, and {key} is {kind}: {}",
                    self.place()
                )));
            };
            self.string(name)?;
            self.out.push(b':');
            self.way.push(Step::Key(key));
            self.value(&value)?;
            self.way.pop();
        }
        self.out.push(b'}');
        Ok(())
    }

    /// A value that contains itself ends here too.
    fn go_deeper(&self) -> PyResult<()> {
        match self.way.len() < DEPTH_MAX {
            true => Ok(()),
            false => Err(PyValueError::new_err(format!(
                "more than {DEPTH_MAX} levels, or a value that contains itself"
            ))),
        }
    }
}

/// JSON text of a value.
pub fn text_of(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let mut text = Text {
        out: Vec::new(),
        way: Vec::new(),
    };
    text.value(value)?;
    Ok(text.out)
}

/// The text of a document: a `dict`, or JSON text as `str` or `bytes`, which is used unchanged.
pub fn document(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_str()?.as_bytes().to_vec());
    }
    if let Ok(text) = value.cast::<PyBytes>() {
        return Ok(text.as_bytes().to_vec());
    }
    match value.is_instance_of::<PyDict>() {
        true => text_of(value),
        false => Err(PyTypeError::new_err(
            "a document is a dict, or JSON text as str or bytes",
        )),
    }
}

/// Text that a database gave, as a `str`.
pub fn string<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyString>> {
    let text = std::str::from_utf8(text).map_err(|e| PyValueError::new_err(e.to_string()))?;
    Ok(PyString::new(py, text))
}

/// JSON text of a value: as `json.dumps`, but nothing is turned into something else.
#[pyfunction]
pub fn dumps<'py>(py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    string(py, &text_of(value)?)
}
