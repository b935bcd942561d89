//! The grammar of the text form.
//!
//! ```text
//! [finder://] target / interface / method [ ? name[:type]=value { & name[:type]=value } ]
//! ```
//! In values, `%`, `&`, `=`, `#`, control characters and whatever else one likes are written as `%` and two
//! hexadecimal digits. An argument given several times is a list.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use crate::XrlError;

/// What a generic XRL begins with.
pub(crate) const SCHEME: &str = "finder://";

/// A call in text form, not yet compared with an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xrl {
    /// Component class or instance.
    pub target: String,
    /// Package ("bgp.v1") or full service name ("bgp.v1.Bgp").
    pub interface: String,
    /// Method name.
    pub method: String,
    /// Arguments in order.
    pub arguments: Vec<Argument>,
}

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Field name.
    pub name: String,
    /// Type name; empty when left out.
    pub kind: String,
    /// Value, unescaped.
    pub value: String,
}

impl FromStr for Xrl {
    type Err = XrlError;

    fn from_str(text: &str) -> Result<Self, XrlError> {
        let rest = text.strip_prefix(SCHEME).unwrap_or(text);
        let (path, arguments) = rest.split_once('?').unwrap_or((rest, ""));
        let parts: Vec<&str> = path.split('/').collect();
        let [target, interface, method] = parts[..] else {
            return Err(XrlError::invalid_argument(format!(
                "\"{text}\" is not TARGET/INTERFACE/METHOD[?ARGUMENTS]"
            )));
        };
        if parts.iter().any(|part| part.is_empty()) {
            return Err(XrlError::invalid_argument(format!("\"{text}\": a part of the name is empty")));
        }
        let arguments = arguments.split('&').filter(|argument| !argument.is_empty());
        Ok(Self {
            target: target.to_owned(),
            interface: interface.to_owned(),
            method: method.to_owned(),
            arguments: arguments.map(str::parse).collect::<Result<_, _>>()?,
        })
    }
}

impl fmt::Display for Xrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}/{}", self.target, self.interface, self.method)?;
        for (index, argument) in self.arguments.iter().enumerate() {
            write!(f, "{}{argument}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

impl FromStr for Argument {
    type Err = XrlError;

    fn from_str(text: &str) -> Result<Self, XrlError> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(XrlError::invalid_argument(format!("argument \"{text}\" is not NAME:TYPE=VALUE")));
        };
        let (name, kind) = name.split_once(':').unwrap_or((name, ""));
        Ok(Self { name: name.to_owned(), kind: kind.to_owned(), value: unescape(value)? })
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if !self.kind.is_empty() {
            write!(f, ":{}", self.kind)?;
        }
        f.write_char('=')?;
        self.value.chars().try_for_each(|c| escape(c, f))
    }
}

fn escape(c: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if matches!(c, '%' | '&' | '=' | '#') || c.is_control() {
        let mut buffer = [0; 4];
        return c.encode_utf8(&mut buffer).bytes().try_for_each(|byte| write!(f, "%{byte:02x}"));
    }
    f.write_char(c)
}

fn unescape(text: &str) -> Result<String, XrlError> {
    let wrong = || XrlError::invalid_argument(format!("\"{text}\": wrong use of % (write it as %25)"));
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (digits, after) = rest.split_at_checked(2).ok_or_else(wrong)?;
            let digits = str::from_utf8(digits).map_err(|_| wrong())?;
            bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
            rest = after;
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_parts_of_a_call_are_found() {
        let xrl: Xrl = "finder://bgp/bgp.v1/SetLocalAs?as:u32=65001&text=a%26b".parse().expect("an XRL");
        assert_eq!(
            (xrl.target.as_str(), xrl.interface.as_str(), xrl.method.as_str()),
            ("bgp", "bgp.v1", "SetLocalAs")
        );
        assert_eq!(xrl.arguments[0].kind, "u32");
        assert_eq!(xrl.arguments[1].value, "a&b");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("bgp/Clear", "is not TARGET/INTERFACE/METHOD"),
            ("bgp//Clear", "a part of the name is empty"),
            ("bgp/bgp.v1/Clear?peer", "argument \"peer\" is not NAME:TYPE=VALUE"),
            ("bgp/bgp.v1/Clear?peer=%4", "wrong use of %"),
            ("bgp/bgp.v1/Clear?peer=%ff", "wrong use of %"),
        ] {
            let error = text.parse::<Xrl>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    proptest! {
        #![proptest_config(holdfast_testing::cases(256))]

        #[test]
        fn any_argument_survives_printing_and_parsing(value in any::<String>(), kind in "[a-z0-9]{0,5}") {
            let argument = Argument { name: "name".to_owned(), kind, value };
            let xrl = Xrl {
                target: "bgp".to_owned(),
                interface: "bgp.v1".to_owned(),
                method: "M".to_owned(),
                arguments: vec![argument.clone(), argument],
            };
            prop_assert_eq!(xrl.to_string().parse::<Xrl>().expect("an XRL"), xrl);
        }

        #[test]
        fn any_text_is_an_xrl_or_an_error(text in "[a-z:/?&=%# ]{0,40}|.*") {
            crate::fuzzing::xrl(&text);
        }
    }
}
