//! `expect` and `await`: what is to come.

use std::fmt;

use holdfast_bgp_wire::attribute::name;
use holdfast_types::{Asn, Family, Prefix};

use super::words::{Words, hex};

/// What is to come.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the manual page says what each matches")]
pub enum Expected {
    Open {
        asn: Option<Asn>,
        capabilities: Vec<u8>,
    },
    Keepalive,
    Update {
        announces: Vec<Prefix>,
        withdraws: Vec<Prefix>,
        with: Vec<u8>,
        without: Vec<u8>,
    },
    EndOfRib(Family),
    Refresh,
    Notification {
        code: Option<u8>,
        subcode: Option<u8>,
    },
    Close,
    /// A whole message; `is_open`: or one that begins so.
    Hex {
        pattern: Vec<Octet>,
        is_open: bool,
    },
}

/// An octet of a pattern: one, or any.
pub type Octet = Option<u8>;

pub(super) fn read(words: &mut Words) -> Result<Expected, String> {
    let octet = u32::from(u8::MAX);
    Ok(match words.need("what to expect")?.as_str() {
        "open" => {
            let (mut asn, mut capabilities) = (None, Vec::new());
            loop {
                if words.take("as") {
                    asn = Some(words.parse("an AS number")?);
                } else if words.take("capability") {
                    capabilities.push(words.number("a capability", octet)? as u8);
                } else {
                    break Expected::Open { asn, capabilities };
                }
            }
        }
        "keepalive" => Expected::Keepalive,
        "update" => {
            let (mut announces, mut withdraws, mut with, mut without) = Default::default();
            loop {
                let (announced, withdrawn): (&mut Vec<Prefix>, &mut Vec<Prefix>) =
                    (&mut announces, &mut withdraws);
                if words.take("announces") {
                    announced.push(words.parse("a prefix")?);
                } else if words.take("withdraws") {
                    withdrawn.push(words.parse("a prefix")?);
                } else if words.take("with") {
                    attribute(words, &mut with)?;
                } else if words.take("without") {
                    attribute(words, &mut without)?;
                } else {
                    break Expected::Update { announces, withdraws, with, without };
                }
            }
        }
        "end-of-rib" => Expected::EndOfRib(words.parse("a family")?),
        "refresh" => Expected::Refresh,
        "notification" => {
            let mut number = || match words.peek() {
                Some(word) if word != "within" => Ok(Some(words.number("a code", octet)? as u8)),
                _ => Ok::<_, String>(None),
            };
            let code = number()?;
            let subcode = if code.is_some() { number()? } else { None };
            Expected::Notification { code, subcode }
        }
        "close" => Expected::Close,
        "hex" => pattern(words)?,
        other => return Err(format!("`{other}` cannot be expected")),
    })
}

/// `attribute TYPE` or `TYPE`.
fn attribute(words: &mut Words, into: &mut Vec<u8>) -> Result<(), String> {
    words.take("attribute");
    into.push(words.number("a type of attributes", u8::MAX.into())? as u8);
    Ok(())
}

/// Octets, `..` for any one, and at the end `*` for anything more.
fn pattern(words: &mut Words) -> Result<Expected, String> {
    let mut digits = String::new();
    while words.peek().is_some_and(|word| word != "within") {
        digits.push_str(&words.next().unwrap_or_default());
    }
    let (digits, is_open) = match digits.strip_suffix('*') {
        Some(digits) => (digits, true),
        None => (digits.as_str(), false),
    };
    let pairs = digits.as_bytes().chunks(2).map(|pair| match pair {
        b".." => Ok(None),
        pair => hex(&String::from_utf8_lossy(pair)).map(|octets| octets.first().copied()),
    });
    let pattern: Vec<Octet> = pairs.collect::<Result<_, _>>()?;
    if pattern.is_empty() && !is_open {
        Err("a pattern is missing".to_owned())
    } else {
        Ok(Expected::Hex { pattern, is_open })
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { asn, capabilities } => {
                f.write_str("OPEN")?;
                asn.iter().try_for_each(|asn| write!(f, " of AS {asn}"))?;
                capabilities.iter().try_for_each(|code| write!(f, " with capability {code}"))
            }
            Self::Keepalive => f.write_str("KEEPALIVE"),
            Self::Update { announces, withdraws, with, without } => {
                f.write_str("UPDATE")?;
                announces.iter().try_for_each(|prefix| write!(f, " that announces {prefix}"))?;
                withdraws.iter().try_for_each(|prefix| write!(f, " that withdraws {prefix}"))?;
                with.iter().try_for_each(|code| write!(f, " with {}", Named(*code)))?;
                without.iter().try_for_each(|code| write!(f, " without {}", Named(*code)))
            }
            Self::EndOfRib(family) => write!(f, "End-of-RIB of {family}"),
            Self::Refresh => f.write_str("ROUTE-REFRESH"),
            Self::Notification { code, subcode } => {
                f.write_str("NOTIFICATION")?;
                code.iter().try_for_each(|code| write!(f, " {code}"))?;
                subcode.iter().try_for_each(|subcode| write!(f, " {subcode}"))
            }
            Self::Close => f.write_str("the end of the connection"),
            Self::Hex { pattern, is_open } => {
                f.write_str("message ")?;
                for octet in pattern {
                    match octet {
                        Some(octet) => write!(f, "{octet:02x}")?,
                        None => f.write_str("..")?,
                    }
                }
                f.write_str(if *is_open { "*" } else { "" })
            }
        }
    }
}

/// An attribute as people say it.
pub(crate) struct Named(pub(crate) u8);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name(self.0) {
            Some(name) => f.write_str(name),
            None => write!(f, "attribute {}", self.0),
        }
    }
}
