//! The ClientHello (RFC 8446 section 4.1.2): the first message of a handshake, by the client.

use thiserror::Error;

use crate::reader::Reader;

/// Handshake type of a ClientHello (RFC 8446 section 4).
const CLIENT_HELLO: u8 = 1;
/// Extension server_name (RFC 6066 section 3).
const SERVER_NAME: u16 = 0;
/// Extension application_layer_protocol_negotiation (RFC 7301 section 3.1).
const ALPN: u16 = 16;
/// NameType of a host_name (RFC 6066 section 3).
const HOST_NAME: u8 = 0;
/// Version and random, of fixed length.
const FIXED: usize = 2 + 32;
/// Octets of a session id, at most.
const MOST_SESSION_ID: usize = 32;

/// What a look at a first flight has shown.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Peek<'a> {
    /// All of the ClientHello is here.
    Known(ClientHello<'a>),
    /// What is here may begin one, and more has to come.
    Incomplete,
    /// It begins something else.
    Other,
}

/// What a ClientHello asks for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientHello<'a> {
    alpn: &'a [u8],
    server_name: Option<&'a str>,
}

impl<'a> ClientHello<'a> {
    /// Protocols that are offered, in their order, as in the extension (RFC 7301 section 3.1): each behind its length. Empty
    /// without the extension.
    pub fn alpn(&self) -> &'a [u8] {
        self.alpn
    }

    /// The protocols one by one.
    pub fn protocols(&self) -> Protocols<'a> {
        Protocols::new(self.alpn)
    }

    /// The server that is asked for, if one is named. ASCII; whether it can be a host's name is not looked at.
    pub fn server_name(&self) -> Option<&'a str> {
        self.server_name
    }

    fn read(body: &'a [u8]) -> Result<Self, BadHello> {
        let mut body = Reader::new(body);
        body.take(FIXED).ok_or(BadHello::CutOff("random"))?;
        if body.vector8().ok_or(BadHello::CutOff("session id"))?.len() > MOST_SESSION_ID {
            return Err(BadHello::Length("session id"));
        }
        let suites = body.vector16().ok_or(BadHello::CutOff("cipher suites"))?;
        if suites.is_empty() || !suites.len().is_multiple_of(2) {
            return Err(BadHello::Length("cipher suites"));
        }
        if body.vector8().ok_or(BadHello::CutOff("compression methods"))?.is_empty() {
            return Err(BadHello::Length("compression methods"));
        }
        // Who speaks no more than TLS 1.2 may leave them out.
        if body.is_empty() {
            return Ok(Self::default());
        }
        let extensions = body.vector16().ok_or(BadHello::CutOff("extensions"))?;
        if !body.is_empty() {
            return Err(BadHello::Trailing("extensions"));
        }
        Self::read_extensions(Reader::new(extensions))
    }

    fn read_extensions(mut extensions: Reader<'a>) -> Result<Self, BadHello> {
        let (mut alpn, mut server_name) = (None, None);
        while !extensions.is_empty() {
            let kind = extensions.u16().ok_or(BadHello::CutOff("extensions"))?;
            let data = extensions.vector16().ok_or(BadHello::CutOff("extensions"))?;
            match kind {
                ALPN => once("ALPN", &mut alpn, protocol_names(data)?)?,
                SERVER_NAME => once("server name", &mut server_name, host_name(data)?)?,
                _ => {}
            }
        }
        Ok(Self { alpn: alpn.unwrap_or_default(), server_name: server_name.flatten() })
    }
}

/// Looks at octets that begin a handshake. Those behind the ClientHello are not looked at.
///
/// # Errors
/// It is all here, and it is malformed: by RFC 8446 section 6.2 the handshake ends with decode_error, or for a name that
/// no host has with illegal_parameter.
pub fn peek(octets: &[u8]) -> Result<Peek<'_>, BadHello> {
    let mut octets = Reader::new(octets);
    match octets.u8() {
        None => return Ok(Peek::Incomplete),
        Some(CLIENT_HELLO) => {}
        Some(_) => return Ok(Peek::Other),
    }
    match octets.u24().and_then(|length| octets.take(length as usize)) {
        None => Ok(Peek::Incomplete),
        Some(body) => ClientHello::read(body).map(Peek::Known),
    }
}

/// RFC 8446 section 4.2: no type of extension is there twice.
fn once<T>(name: &'static str, slot: &mut Option<T>, value: T) -> Result<(), BadHello> {
    slot.replace(value).map_or(Ok(()), |_| Err(BadHello::Twice(name)))
}

/// RFC 7301 section 3.1: one name at least, none of them empty.
fn protocol_names(data: &[u8]) -> Result<&[u8], BadHello> {
    let mut data = Reader::new(data);
    let list = data.vector16().ok_or(BadHello::CutOff("ALPN"))?;
    if !data.is_empty() {
        return Err(BadHello::Trailing("ALPN"));
    }
    let mut names = Reader::new(list);
    if names.is_empty() {
        return Err(BadHello::Length("ALPN"));
    }
    while !names.is_empty() {
        if names.vector8().ok_or(BadHello::CutOff("ALPN"))?.is_empty() {
            return Err(BadHello::Length("ALPN"));
        }
    }
    Ok(list)
}

/// RFC 6066 section 3. `None`: no name of a host is first. What follows one is not looked at, as there is no other type.
fn host_name(data: &[u8]) -> Result<Option<&str>, BadHello> {
    let mut data = Reader::new(data);
    let mut names = Reader::new(data.vector16().ok_or(BadHello::CutOff("server name"))?);
    if !data.is_empty() {
        return Err(BadHello::Trailing("server name"));
    }
    if names.u8().ok_or(BadHello::Length("server name"))? != HOST_NAME {
        return Ok(None);
    }
    let name = names.vector16().ok_or(BadHello::CutOff("server name"))?;
    if name.is_empty() {
        return Err(BadHello::Length("server name"));
    }
    match str::from_utf8(name) {
        Ok(name) if name.is_ascii() => Ok(Some(name)),
        _ => Err(BadHello::NotAscii),
    }
}

/// Names of protocols as in the extension (RFC 7301 section 3.1), one by one. A list that is cut off ends before the name
/// that is.
#[derive(Copy, Clone, Debug)]
pub struct Protocols<'a>(Reader<'a>);

impl<'a> Protocols<'a> {
    /// Of a list in which each name is behind its length.
    pub fn new(list: &'a [u8]) -> Self {
        Self(Reader::new(list))
    }
}

impl<'a> Iterator for Protocols<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.0.vector8()
    }
}

/// What is wrong with a ClientHello: the client's fault.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum BadHello {
    /// Something says that it is longer than what holds it.
    #[error("the ClientHello ends within its {0}")]
    CutOff(&'static str),
    /// Something has a length that it cannot have.
    #[error("the {0} of the ClientHello has a length that is not allowed")]
    Length(&'static str),
    /// There is more than there should be.
    #[error("octets follow the {0} of the ClientHello")]
    Trailing(&'static str),
    /// An extension is there twice.
    #[error("the ClientHello has the extension {0} twice")]
    Twice(&'static str),
    /// The server's name is not ASCII (RFC 6066 section 3).
    #[error("the server's name in the ClientHello is not ASCII")]
    NotAscii,
    /// A record has a length that it cannot have (RFC 8446 section 5.1).
    #[error("the ClientHello is in a record of {0} octets")]
    Record(u16),
    /// A record of another type comes before the end (RFC 8446 section 5.1).
    #[error("a record of type {0} interrupts the ClientHello")]
    Interrupted(u8),
}
