//! The values of arguments of commands.

use holdfast_types::Asn;
use serde_json::Value;

use crate::{
    describe::{Key, Type},
    input::Problem,
};

/// The value of an argument, as it travels, from a word of a command line.
///
/// # Errors
/// What is wrong with it.
pub fn read_argument(argument: &Key, text: &str) -> Result<Value, String> {
    let expected = || format!("expected {}", argument.value.words());
    match argument.value {
        Type::Bool => text.parse::<bool>().map(Value::from).map_err(|_| expected()),
        Type::Number(low, high) => {
            let number = text.parse::<u64>().ok().filter(|number| (low..=high).contains(number));
            number.map(Value::from).ok_or_else(expected)
        }
        Type::Word(words) => words.contains(&text).then(|| text.into()).ok_or_else(expected),
        Type::Asn => text.parse::<Asn>().map(|asn| asn.0.into()).map_err(|_| expected()),
        Type::Form(form) => form.read(text).map(|()| text.into()).map_err(Problem::into_message),
        Type::Text(..)
        | Type::Secret(..)
        | Type::Name(..)
        | Type::List(_)
        | Type::Either(_)
        | Type::Table(_)
        | Type::Moded(_)
        | Type::Like(..)
        | Type::Tables(..)
        | Type::Templates(..) => Ok(text.into()),
    }
}
