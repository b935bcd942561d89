//! Values as an operator types them: TOML, or the same without its quotes.

use holdfast_config::describe::Type;
use toml_edit::{Array, Value};

/// Reads the words after a key. Whether the value is in range is for the check of the whole.
pub(super) fn read(kind: &Type, words: &[String]) -> Result<Value, String> {
    let text = words.join(" ");
    if text.is_empty() {
        return Err(format!("a value is missing: expected {}", kind.words()));
    }
    if text.starts_with(['"', '\'', '[', '{']) && (words.len() == 1 || !text.starts_with('"')) {
        return toml(&text);
    }
    match kind {
        Type::Bool | Type::Number(..) => toml(&text),
        Type::Asn if is_number(&text) => toml(&text),
        Type::Asn | Type::Word(_) | Type::Text(..) | Type::Secret(..) | Type::Form(_) | Type::Name(..) => {
            Ok(Value::from(unquoted(&text)))
        }
        Type::List(of) | Type::Moded(of) => {
            let entries = words.iter().map(|word| read(of, std::slice::from_ref(word)));
            Ok(Value::Array(entries.collect::<Result<Array, _>>()?))
        }
        Type::Either(kinds) => match kinds.iter().find(|kind| fits(kind, &text, words.len())) {
            Some(kind) => read(kind, words),
            None => Err(format!("`{text}` is no value: expected {}", kind.words())),
        },
        Type::Table(_) | Type::Tables(..) | Type::Templates(..) | Type::Like(..) => {
            Err("this is a table: name one of its keys".to_owned())
        }
    }
}

fn toml(text: &str) -> Result<Value, String> {
    text.parse().map_err(|_| format!("`{text}` is no value"))
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|octet| octet.is_ascii_digit())
}

fn fits(kind: &Type, text: &str, words: usize) -> bool {
    match kind {
        Type::Bool => ["true", "false"].contains(&text),
        Type::Number(..) => is_number(text),
        Type::Word(known) => known.contains(&text),
        Type::Asn => text.split('.').all(|part| !part.is_empty() && is_number(part)),
        Type::List(_) | Type::Moded(_) => words > 1,
        Type::Either(kinds) => kinds.iter().any(|kind| fits(kind, text, words)),
        Type::Text(..) | Type::Secret(..) | Type::Form(_) | Type::Name(..) => words == 1,
        Type::Table(_) | Type::Tables(..) | Type::Templates(..) | Type::Like(..) => false,
    }
}
