//! The secrets of a section: they are told apart from what else it says.

use serde_json::{Map, Value};

use crate::describe::{Table, Type};

/// Octets of all secrets of a section, as JSON: as many as a process reads of sealed memory.
pub const MOST_SECRETS: usize = 64 << 10;

/// Whether a section may have any.
pub fn has_secrets(table: &Table) -> bool {
    table.keys.iter().any(|key| is_secret(&key.value) || key.value.table().is_some_and(has_secrets))
}

fn is_secret(of: &Type) -> bool {
    match of {
        Type::Secret(..) => true,
        Type::List(of) | Type::Moded(of) => is_secret(of),
        Type::Either(types) => types.iter().any(is_secret),
        Type::Bool
        | Type::Number(..)
        | Type::Word(_)
        | Type::Text(..)
        | Type::Form(_)
        | Type::Asn
        | Type::Name(..)
        | Type::Table(_)
        | Type::Like(..)
        | Type::Tables(..)
        | Type::Templates(..) => false,
    }
}

/// What a section says without its secrets, and these. In the place of each is its place in the list, from 0.
pub fn apart(table: &Table, values: &Map<String, Value>) -> (Map<String, Value>, Vec<String>) {
    let (mut values, mut secrets) = (values.clone(), Vec::new());
    take(table, &mut values, &mut secrets);
    (values, secrets)
}

fn take(table: &Table, values: &mut Map<String, Value>, secrets: &mut Vec<String>) {
    for key in table.keys {
        let Some(value) = values.get_mut(key.name) else { continue };
        if is_secret(&key.value) {
            replace(value, secrets);
        } else if let Some(below) = key.value.table() {
            match value {
                Value::Object(values) => take(below, values, secrets),
                Value::Array(entries) => {
                    let entries = entries.iter_mut().filter_map(Value::as_object_mut);
                    entries.for_each(|values| take(below, values, secrets));
                }
                _ => {}
            }
        }
    }
}

fn replace(value: &mut Value, secrets: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let text = std::mem::take(text);
            *value = secrets.len().into();
            secrets.push(text);
        }
        Value::Array(list) => list.iter_mut().for_each(|value| replace(value, secrets)),
        _ => {}
    }
}
