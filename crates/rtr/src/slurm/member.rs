//! A place in a JSON document that knows where it is.

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde_json::{Map, Value};

use super::Wrong;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A value.
#[derive(Clone)]
pub(super) struct Member<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> Member<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Self { value, path: String::new() }
    }

    pub(super) fn wrong(&self, reason: String) -> Wrong {
        (if self.path.is_empty() { "the file".into() } else { self.path.clone() }, reason)
    }

    fn expected(&self, what: &str) -> Wrong {
        self.wrong(format!("{what} is expected"))
    }

    pub(super) fn object(&self) -> Result<Fields<'a>, Wrong> {
        let map = self.value.as_object().ok_or_else(|| self.expected("an object"))?;
        Ok(Fields { map, path: self.path.clone(), known: Vec::new() })
    }

    pub(super) fn array(&self) -> Result<impl Iterator<Item = Self> + use<'a>, Wrong> {
        let values = self.value.as_array().ok_or_else(|| self.expected("an array"))?;
        let path = self.path.clone();
        Ok(values
            .iter()
            .enumerate()
            .map(move |(index, value)| Self { value, path: format!("{path}[{index}]") }))
    }

    pub(super) fn text(&self) -> Result<&'a str, Wrong> {
        self.value.as_str().ok_or_else(|| self.expected("a string"))
    }

    pub(super) fn number(&self, most: u32) -> Result<u32, Wrong> {
        let number = self.value.as_u64().and_then(|number| u32::try_from(number).ok());
        number
            .filter(|number| *number <= most)
            .ok_or_else(|| self.expected(&format!("a number from 0 to {most}")))
    }

    /// Of either alphabet (RFC 4648 sections 4 and 5), padded or not.
    pub(super) fn base64(&self) -> Result<Vec<u8>, Wrong> {
        let text = self.text()?.replace('-', "+").replace('_', "/");
        BASE64.decode(text).map_err(|error| self.wrong(format!("no base64: {error}")))
    }
}

/// The members of an object, as they are asked for.
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub(super) fn wrong(&self, reason: &str) -> Wrong {
        (self.path.clone(), reason.into())
    }

    pub(super) fn optional(&mut self, name: &'static str) -> Option<Member<'a>> {
        self.known.push(name);
        let dot = if self.path.is_empty() { "" } else { "." };
        self.map.get(name).map(|value| Member { value, path: format!("{}{dot}{name}", self.path) })
    }

    pub(super) fn required(&mut self, name: &'static str) -> Result<Member<'a>, Wrong> {
        let path = if self.path.is_empty() { "the file" } else { &self.path };
        let missing = (path.into(), format!("`{name}` is missing"));
        self.optional(name).ok_or(missing)
    }

    /// Nothing is there that was not asked for.
    pub(super) fn end(self) -> Result<(), Wrong> {
        match self.map.keys().find(|name| !self.known.contains(&name.as_str())) {
            Some(name) => {
                let path = if self.path.is_empty() { "the file".into() } else { self.path };
                Err((path, format!("`{name}` is not defined")))
            }
            None => Ok(()),
        }
    }
}
