//! The description as a JSON schema, for editors.

use serde_json::{Map, Value, json};

use super::{Default, Key, Table, Type};

/// The JSON schema (draft 7) of a configuration file.
pub fn json_schema(file: &Table) -> Value {
    // Tables are like those that every router has.
    titled("Holdfast configuration", file, &crate::keys::FILE)
}

/// The JSON schema (draft 7) of a descriptor.
pub fn descriptor_schema() -> Value {
    titled("Holdfast protocol descriptor", &crate::FORMAT, &crate::FORMAT)
}

/// The schema of a file; tables that are like others are like those of `root`.
fn titled(title: &str, file: &Table, root: &Table) -> Value {
    let mut schema = table(file, root);
    let head = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": title,
    });
    if let (Some(schema), Value::Object(head)) = (schema.as_object_mut(), head) {
        schema.extend(head);
    }
    schema
}

fn table(table: &Table, root: &Table) -> Value {
    let required: Vec<_> = table.keys.iter().filter(|key| key.default == Default::Required).collect();
    let mut schema = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": table.keys.iter().map(|key| (key.name.to_owned(), property(key, root))).collect::<Map<_, _>>(),
    });
    if !required.is_empty() {
        schema["required"] = required.iter().map(|key| key.name).collect();
    }
    schema
}

fn property(key: &Key, root: &Table) -> Value {
    let mut schema = value(&key.value, root);
    schema["description"] = description(key).into();
    if let Default::Is(default) = key.default
        && let Some(default) = toml_value(default)
    {
        schema["default"] = default;
    }
    schema
}

fn description(key: &Key) -> String {
    let doc = key.value.table().map_or(key.doc, |table| if key.doc.is_empty() { table.doc } else { key.doc });
    match key.value {
        Type::Table(_) | Type::Tables(..) => doc.to_owned(),
        _ => format!("{doc}\n\nDefault: {}. Takes effect: {}.", key.default.words(), key.effect.words()),
    }
}

/// A default as JSON.
fn toml_value(text: &str) -> Option<Value> {
    let table: toml::Table = format!("x = {text}").parse().ok()?;
    serde_json::to_value(&table["x"]).ok()
}

/// Where the schema of the table is that the key of this name holds, as in `policy.term.then`.
fn pointer(key: &str, root: &Table) -> String {
    let (mut pointer, mut table) = (String::from("#"), root);
    for name in key.split('.') {
        let Some(key) = table.key(name) else { break };
        pointer += &format!("/properties/{name}");
        match &key.value {
            Type::Tables(..) => pointer += "/items",
            Type::Either(types) => {
                let place = types.iter().position(|one| matches!(one, Type::Table(_))).unwrap_or_default();
                pointer += &format!("/anyOf/{place}");
            }
            _ => {}
        }
        table = key.value.table().unwrap_or(table);
    }
    pointer
}

fn value(of: &Type, root: &Table) -> Value {
    match of {
        Type::Bool => json!({ "type": "boolean" }),
        Type::Number(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
        Type::Word(words) => json!({ "enum": words }),
        Type::Form(form) => json!({ "type": "string", "examples": [form.example()] }),
        Type::Text(_, example) => json!({ "type": "string", "examples": [example] }),
        Type::Secret(_, example) => json!({ "type": "string", "examples": [example], "writeOnly": true }),
        Type::Asn => json!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": 4_294_967_294_u32 },
            { "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?$" },
        ] }),
        Type::Name(..) => json!({ "type": "string" }),
        Type::List(of) => {
            let one = value(of, root);
            json!({ "anyOf": [{ "type": "array", "items": one }, one] })
        }
        Type::Either(types) => json!({ "anyOf": types.iter().map(|of| value(of, root)).collect::<Vec<_>>() }),
        Type::Moded(of) => {
            let one = value(of, root);
            // What the lists hold is said once, for the list without a table.
            let modes = super::MODES.names().map(|mode| (mode.to_owned(), json!({})));
            let modes = json!({
                "type": "object",
                "additionalProperties": false,
                "properties": modes.collect::<Map<_, _>>(),
            });
            json!({ "anyOf": [{ "type": "array", "items": one }, one, modes] })
        }
        Type::Table(of) => table(of, root),
        Type::Like(_, key) => json!({ "$ref": pointer(key, root) }),
        Type::Tables(of, _) => json!({ "type": "array", "items": table(of, root) }),
        Type::Templates(of, key) => {
            let place = format!("{}/properties", pointer(key, root));
            let key = |key: &Key| (key.name.to_owned(), json!({ "$ref": format!("{place}/{}", key.name) }));
            json!({ "type": "array", "items": {
                "type": "object",
                "additionalProperties": false,
                "properties": of.keys.iter().map(key).collect::<Map<_, _>>(),
                "required": ["name"],
            } })
        }
    }
}
