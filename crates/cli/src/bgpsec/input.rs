//! What is given to the commands: octets, keys.

use std::{
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    io::Read,
    path::{Path, PathBuf},
};

use clap::Args;
use holdfast_bgp_wire::{
    MAX_EXTENDED_LEN, MessageType,
    bgpsec::{BGPSEC_PATH_IN_EXAMPLES, NotSecure, SecureUpdate},
    next_message,
};
use holdfast_path_validation::{Change, KeyTable, P256Signer, RouterKey};
use holdfast_tls::keys::{self, Item};
use holdfast_types::Asn;

use super::Reading;
use crate::{
    Failure,
    keygen::{SPKI, name_of},
};

/// What a message begins with.
const MARKER: [u8; 16] = [0xff; 16];
/// Octets of a file: digits of the longest message, with as much between them.
const LONGEST_FILE: u64 = 4 * MAX_EXTENDED_LEN as u64;
/// Octets of a file with keys: a line has about 240.
const LONGEST_KEYS: u64 = 256 << 20;

pub(super) fn wrong(said: impl Into<String>) -> Failure {
    Failure::Input(said.into())
}

pub(super) fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02X}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|digit| !digit.is_ascii_whitespace())
        .map(|digit| Some(digit.to_digit(16)? as u8))
        .collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn read(file: &Path, longest: u64) -> Result<Vec<u8>, Failure> {
    let fault = |error: &dyn std::fmt::Display| wrong(format!("{}: {error}", file.display()));
    let mut octets = Vec::new();
    let opened = fs::File::open(file).map_err(|error| fault(&error))?;
    opened.take(longest + 1).read_to_end(&mut octets).map_err(|error| fault(&error))?;
    if octets.len() as u64 > longest {
        Err(fault(&format!("it has more than {longest} octets")))
    } else {
        Ok(octets)
    }
}

/// The body of an UPDATE given as digits, or as `@FILE` with digits or the octets themselves; with its header or without.
pub(super) fn body(given: &str) -> Result<Vec<u8>, Failure> {
    let octets = match given.strip_prefix('@') {
        None => unhex(given).ok_or_else(|| wrong("--update: not an even number of hexadecimal digits"))?,
        Some(file) => {
            let octets = read(Path::new(file), LONGEST_FILE)?;
            // Neither a message nor a body is of digits only: it begins with 255 or 0.
            std::str::from_utf8(&octets).ok().and_then(unhex).unwrap_or(octets)
        }
    };
    if !octets.starts_with(&MARKER) {
        return Ok(octets);
    }
    let message = next_message(&octets, MAX_EXTENDED_LEN)
        .map_err(|error| wrong(format!("--update: {error}")))?
        .filter(|message| message.wire.len() == octets.len())
        .ok_or_else(|| wrong("--update: the length in the header is not that of the message"))?;
    match message.kind {
        MessageType::Update => Ok(message.body.to_vec()),
        kind => Err(wrong(format!("--update: this is no UPDATE but a message of type {}", kind as u8))),
    }
}

/// What is to be looked at of an UPDATE; `Err` inside: it is malformed.
pub(super) fn secure<'a>(
    body: &'a [u8],
    reading: &Reading,
) -> Result<Result<SecureUpdate<'a>, NotSecure>, Failure> {
    match SecureUpdate::parse(body, reading.attribute) {
        Err(NotSecure::NoPath { codes, .. }) if codes.contains(&BGPSEC_PATH_IN_EXAMPLES) => Err(wrong(
            "the UPDATE has no BGPsec_PATH (type 33), but an attribute of type 30: that is what the examples of RFC 8208 \
             and RFC 8608 have in its place; --attribute 30 reads it",
        )),
        Err(error @ NotSecure::NoPath { .. }) => Err(wrong(format!("no BGPsec_PATH: {error}"))),
        read => Ok(read),
    }
}

/// Public keys on the command line.
#[derive(Clone, Debug, Args)]
pub(super) struct GivenKeys {
    /// Public keys as ASN:SKI:SPKI, the last two in hexadecimal digits.
    #[arg(long, value_name = "ASN:SKI:SPKI", value_delimiter = ',')]
    keys: Vec<String>,
    /// The same from a file, each on its line; lines that begin with # are passed over.
    #[arg(long, value_name = "FILE")]
    keys_file: Vec<PathBuf>,
    /// Public keys of a directory: the files AS.SKI.spki.pem and .der, as `holdfast keygen` makes them.
    #[arg(long, value_name = "DIR")]
    key_dir: Vec<PathBuf>,
}

impl GivenKeys {
    /// All of them in a table.
    pub(super) fn table(&self) -> Result<KeyTable, Failure> {
        let mut all = Vec::new();
        for text in &self.keys {
            all.push(router_key(text).map_err(|said| wrong(format!("--keys: {said}")))?);
        }
        for file in &self.keys_file {
            let said = |said: &dyn std::fmt::Display| wrong(format!("{}: {said}", file.display()));
            let text = String::from_utf8(read(file, LONGEST_KEYS)?).map_err(|_| said(&"it is no text"))?;
            for (number, text) in text.lines().map(str::trim).enumerate() {
                if !text.is_empty() && !text.starts_with('#') {
                    let key =
                        router_key(text).map_err(|error| said(&format!("line {}: {error}", number + 1)))?;
                    all.push(key);
                }
            }
        }
        for directory in &self.key_dir {
            of_directory(directory, &mut all)?;
        }
        // Where keys are in the table shall be nobody's to choose.
        let table = KeyTable::new([0; 2].map(|_: u64| RandomState::new().build_hasher().finish()));
        table.apply(all.into_iter().map(Change::Announce));
        Ok(table)
    }
}

fn router_key(text: &str) -> Result<RouterKey, String> {
    let [asn, ski, spki] = text.split(':').collect::<Vec<_>>()[..] else {
        return Err(format!("`{text}` is no key: ASN:SKI:SPKI"));
    };
    Ok(RouterKey {
        asn: asn.parse().map_err(|error| format!("{error}"))?,
        ski: ski.parse().map_err(|error| format!("{error}"))?,
        spki: unhex(spki).ok_or_else(|| format!("`{spki}` are no hexadecimal digits"))?,
    })
}

fn of_directory(directory: &Path, all: &mut Vec<RouterKey>) -> Result<(), Failure> {
    let fault = |error: std::io::Error| wrong(format!("{}: {error}", directory.display()));
    let before = all.len();
    for entry in fs::read_dir(directory).map_err(fault)? {
        let file = entry.map_err(fault)?.path();
        let Some((asn, ski, SPKI)) = name_of(&file) else { continue };
        let items = keys::read(&read(&file, LONGEST_FILE)?);
        let spki = items.ok().into_iter().flatten().find_map(|item| match item {
            Item::PublicKey(der) => Some(der),
            _ => None,
        });
        let spki = spki.ok_or_else(|| wrong(format!("{}: there is no public key in it", file.display())))?;
        all.push(RouterKey { asn, ski, spki });
    }
    match all.len() == before {
        true => Err(wrong(format!("{}: no file is named AS.SKI.spki.pem or .der", directory.display()))),
        false => Ok(()),
    }
}

/// A private key in a file whose name says the AS, if that is not said.
pub(super) fn signer(file: &Path, asn: Option<Asn>) -> Result<P256Signer, Failure> {
    let said = |said: &dyn std::fmt::Display| wrong(format!("{}: {said}", file.display()));
    let named = asn.or_else(|| name_of(file).map(|(asn, ..)| asn));
    let asn = named.ok_or_else(|| said(&"the name does not begin with an AS, so --as has to say it"))?;
    let der = keys::private_key(&read(file, LONGEST_FILE)?).map_err(|error| said(&error))?;
    P256Signer::from_der(asn, &der).map_err(|error| said(&error))
}
