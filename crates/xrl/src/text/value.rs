//! Arguments and the messages they stand for.
//!
//! | type | field | value |
//! |---|---|---|
//! | `u32` `u64` `i32` `i64` | of that type | decimal |
//! | `bool` | bool | `true`, `false` |
//! | `txt` | string | as it is |
//! | `enum` | enum | name or number |
//! | `bytes` | bytes | hexadecimal |
//! | `ip` | bytes (4 or 16) or string | an address |
//! | `prefix` | string | address/length |
//! | `json` | any | protobuf's JSON |
//!
//! The type may be left out: then the field decides (`txt` for strings, `bytes` for bytes, `json` for the rest).

use std::net::IpAddr;

use bytes::Bytes;
use prost_reflect::{
    DeserializeOptions, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage,
    SerializeOptions, Value,
};

use super::xrl::Argument;
use crate::XrlError;

/// The message of a type that arguments stand for.
///
/// # Errors
/// `InvalidArgument` with the argument and what was expected.
pub fn from_arguments(
    message: MessageDescriptor,
    arguments: &[Argument],
) -> Result<DynamicMessage, XrlError> {
    let mut built = DynamicMessage::new(message);
    for argument in arguments {
        set(&mut built, argument)
            .map_err(|why| XrlError::invalid_argument(format!("argument \"{argument}\": {why}")))?;
    }
    Ok(built)
}

fn set(message: &mut DynamicMessage, argument: &Argument) -> Result<(), String> {
    let descriptor = message.descriptor();
    let field = descriptor.get_field_by_name(&argument.name).ok_or_else(|| {
        let names: Vec<_> = descriptor.fields().map(|field| field.name().to_owned()).collect();
        format!("{} has no such field (it has: {})", descriptor.name(), names.join(", "))
    })?;
    let kind = if argument.kind.is_empty() { kind_of(&field) } else { &argument.kind };
    if kind == "json" {
        return set_json(message, &field, &argument.value);
    }
    if field.is_map() || field.kind().as_message().is_some() {
        return Err(format!("type json is expected, not {kind}"));
    }
    let value = parse(&field.kind(), kind, &argument.value)?;
    if !field.is_list() {
        message.set_field(&field, value);
    } else if let Some(list) = message.get_field_mut(&field).as_list_mut() {
        list.push(value);
    }
    Ok(())
}

fn set_json(message: &mut DynamicMessage, field: &FieldDescriptor, text: &str) -> Result<(), String> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let whole = serde_json::json!({ field.name(): value });
    let options = DeserializeOptions::new();
    let mut parsed = DynamicMessage::deserialize_with_options(message.descriptor(), whole, &options)
        .map_err(|error| error.to_string())?;
    match (parsed.take_field(field), message.get_field_mut(field)) {
        (Some(Value::List(more)), Value::List(list)) => list.extend(more),
        (Some(value), slot) => *slot = value,
        (None, _) => message.clear_field(field),
    }
    Ok(())
}

/// The type that stands for a field.
fn kind_of(field: &FieldDescriptor) -> &'static str {
    if field.is_map() {
        return "json";
    }
    match field.kind() {
        Kind::Uint32 | Kind::Fixed32 => "u32",
        Kind::Uint64 | Kind::Fixed64 => "u64",
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => "i32",
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => "i64",
        Kind::Bool => "bool",
        Kind::String => "txt",
        Kind::Bytes => "bytes",
        Kind::Enum(_) => "enum",
        Kind::Double | Kind::Float | Kind::Message(_) => "json",
    }
}

/// A single value of a field, given as this type.
fn parse(field: &Kind, kind: &str, text: &str) -> Result<Value, String> {
    fn number<T: std::str::FromStr>(text: &str, kind: &str) -> Result<T, String> {
        text.parse().map_err(|_| format!("\"{text}\" is no {kind}"))
    }
    Ok(match (kind, field) {
        ("u32", Kind::Uint32 | Kind::Fixed32) => Value::U32(number(text, kind)?),
        ("u64", Kind::Uint64 | Kind::Fixed64) => Value::U64(number(text, kind)?),
        ("i32", Kind::Int32 | Kind::Sint32 | Kind::Sfixed32) => Value::I32(number(text, kind)?),
        ("i64", Kind::Int64 | Kind::Sint64 | Kind::Sfixed64) => Value::I64(number(text, kind)?),
        ("bool", Kind::Bool) => Value::Bool(number(text, kind)?),
        ("txt", Kind::String) => Value::String(text.to_owned()),
        ("enum", Kind::Enum(descriptor)) => {
            let named = descriptor.get_value_by_name(text).map(|value| value.number());
            Value::EnumNumber(named.map_or_else(|| number(text, descriptor.name()), Ok)?)
        }
        ("bytes", Kind::Bytes) => Value::Bytes(from_hex(text)?),
        ("ip", Kind::Bytes) => Value::Bytes(octets(number(text, "address")?)),
        ("ip", Kind::String) => Value::String(number::<IpAddr>(text, "address")?.to_string()),
        ("prefix", Kind::String) => Value::String(prefix(text)?),
        _ => return Err(format!("the field is of another type than {kind}")),
    })
}

fn octets(address: IpAddr) -> Bytes {
    match address {
        IpAddr::V4(address) => address.octets().to_vec().into(),
        IpAddr::V6(address) => address.octets().to_vec().into(),
    }
}

fn prefix(text: &str) -> Result<String, String> {
    let parts = text.split_once('/');
    let parsed = parts.and_then(|(address, len)| Some((address.parse().ok()?, len.parse::<u8>().ok()?)));
    match parsed {
        Some((IpAddr::V4(_), 0..=32) | (IpAddr::V6(_), 0..=128)) => Ok(text.to_owned()),
        _ => Err(format!("\"{text}\" is no prefix")),
    }
}

fn from_hex(text: &str) -> Result<Bytes, String> {
    let digits = text.as_bytes().chunks(2).map(|pair| match pair {
        [_, _] => str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()),
        _ => None,
    });
    digits
        .collect::<Option<Vec<u8>>>()
        .map(Bytes::from)
        .ok_or_else(|| format!("\"{text}\" is not hexadecimal"))
}

fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The arguments that stand for a message: what [`from_arguments`] makes the same message of. Fields that have their
/// default value are left out.
pub fn to_arguments(message: &DynamicMessage) -> String {
    let mut arguments = Vec::new();
    for (field, value) in message.fields() {
        match value {
            Value::List(values) => arguments.extend(values.iter().map(|value| print(message, &field, value))),
            value => arguments.push(print(message, &field, value)),
        }
    }
    arguments.join("&")
}

fn print(message: &DynamicMessage, field: &FieldDescriptor, value: &Value) -> String {
    let value = match (value, field.kind()) {
        (Value::U32(number), _) => number.to_string(),
        (Value::U64(number), _) => number.to_string(),
        (Value::I32(number), _) => number.to_string(),
        (Value::I64(number), _) => number.to_string(),
        (Value::Bool(value), _) => value.to_string(),
        (Value::String(text), _) => text.clone(),
        (Value::Bytes(bytes), _) => to_hex(bytes),
        (Value::EnumNumber(number), Kind::Enum(descriptor)) => {
            descriptor.get_value(*number).map_or(number.to_string(), |value| value.name().to_owned())
        }
        _ => json_of_field(message, field, value),
    };
    Argument { name: field.name().to_owned(), kind: kind_of(field).to_owned(), value }.to_string()
}

/// JSON of one value of a field, as `set_json` takes it.
fn json_of_field(message: &DynamicMessage, field: &FieldDescriptor, value: &Value) -> String {
    let mut alone = DynamicMessage::new(message.descriptor());
    let value = if field.is_list() { Value::List(vec![value.clone()]) } else { value.clone() };
    alone.set_field(field, value);
    let json = json_value(&alone, true).ok();
    let json = json.and_then(|json| json.get(field.name()).cloned());
    json.map_or_else(|| "null".to_owned(), |json| json.to_string())
}

fn json_value(message: &DynamicMessage, skip_defaults: bool) -> Result<serde_json::Value, serde_json::Error> {
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .stringify_64_bit_integers(false)
        .skip_default_fields(skip_defaults);
    message.serialize_with_options(serde_json::value::Serializer, &options)
}

/// A message as one line of JSON, with the field names of the interface file and all fields.
///
/// # Errors
/// `Internal` when a value has no form in JSON.
pub fn to_json(message: &DynamicMessage) -> Result<String, XrlError> {
    let json = json_value(message, false);
    json.map(|json| json.to_string()).map_err(|error| XrlError::internal(format!("no JSON: {error}")))
}
