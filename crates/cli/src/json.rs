//! JSON that is written piece by piece.

use std::io::{self, Write};

use serde::Serialize;

/// One value on one line.
pub(crate) fn line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}

/// An object whose members are written as they come to be known.
pub(crate) struct Object<'a> {
    out: &'a mut dyn Write,
    empty: bool,
}

impl<'a> Object<'a> {
    pub(crate) fn begin(out: &'a mut dyn Write) -> io::Result<Self> {
        write!(out, "{{")?;
        Ok(Self { out, empty: true })
    }

    fn key(&mut self, key: &str) -> io::Result<()> {
        let separator = if std::mem::replace(&mut self.empty, false) { "" } else { "," };
        write!(self.out, "{separator}\n{}:", serde_json::Value::from(key))
    }

    pub(crate) fn member(&mut self, key: &str, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
        self.key(key)?;
        Ok(serde_json::to_writer(&mut *self.out, value)?)
    }

    /// A member that is an object; it has to be ended before the next one is written.
    pub(crate) fn object(&mut self, key: &str) -> io::Result<Object<'_>> {
        self.key(key)?;
        Object::begin(&mut *self.out)
    }

    pub(crate) fn end(self) -> io::Result<()> {
        write!(self.out, "\n}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_piece_by_piece_is_json() {
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out).expect("writes");
        object.member("a \"b\"", &1).expect("writes");
        let mut inner = object.object("routes").expect("writes");
        inner.member("x", &["y"]).expect("writes");
        inner.member("z", &true).expect("writes");
        inner.end().expect("writes");
        object.object("empty").expect("writes").end().expect("writes");
        object.end().expect("writes");
        let read: serde_json::Value = serde_json::from_slice(&out).expect("is JSON");
        let expected = serde_json::json!({"a \"b\"": 1, "routes": {"x": ["y"], "z": true}, "empty": {}});
        assert_eq!(read, expected);
    }
}
