//! `holdfast keys`: the keys and certificates that routers prove themselves with.

mod print;

use std::{
    fs::{self, DirBuilder},
    io::Write,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand, builder::RangedI64ValueParser, value_parser};
use holdfast_tls::keys::{
    self, Access, Algorithm, Authority, Item, KeysError, PrivateKey, Validity, describe, pem,
};
use serde_json::json;

use crate::{Failure, json::line};

/// Files of a router or an authority in its directory.
const KEY: &str = "key.pem";
const CERTIFICATE: &str = "certificate.pem";
const REQUEST: &str = "request.pem";
const REVOCATIONS: &str = "crl.pem";

/// `holdfast keys`
#[derive(Clone, Debug, Args)]
#[command(infer_subcommands = true)]
pub struct Keys {
    /// What to do.
    #[command(subcommand)]
    what: What,
    /// Answer as JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Makes the key of a router and its certificate: by itself, for peers that pin the key, or by an authority. A request is
    /// written as well, for an authority elsewhere.
    New(New),
    /// Makes an authority, which signs the certificates of routers.
    Authority(NewAuthority),
    /// Signs a request: a certificate for its names.
    Sign(Sign),
    /// Revokes a certificate: it is added to the authority's revocation list, crl.pem.
    Revoke(Revoke),
    /// Says what is in a file: whose it is, by whom, until when, and the SHA-256 of its key.
    Show {
        /// PEM or DER.
        file: PathBuf,
    },
    /// Prints the SHA-256 of the key in a file (a certificate, request or key): what peers pin.
    Fingerprint {
        /// PEM or DER.
        file: PathBuf,
    },
}

/// How a key is made.
#[derive(Clone, Debug, Args)]
struct Making {
    /// Ed25519 instead of ECDSA with P-256.
    #[arg(long)]
    ed25519: bool,
    /// Replace what is there.
    #[arg(long)]
    force: bool,
}

/// `holdfast keys new`
#[derive(Clone, Debug, Args)]
struct New {
    /// The directory for key.pem, certificate.pem and request.pem; made if it is not there.
    directory: PathBuf,
    /// What the certificate is for: a DNS name or an IP address; several are possible.
    #[arg(long = "name", value_name = "NAME", required = true)]
    names: Vec<String>,
    /// The directory of the authority that signs it.
    #[arg(long, value_name = "DIR")]
    authority: Option<PathBuf>,
    /// How long the certificate is valid.
    #[arg(long, value_name = "DAYS", default_value_t = 730, value_parser = days())]
    days: u32,
    /// How.
    #[command(flatten)]
    making: Making,
}

/// `holdfast keys authority`
#[derive(Clone, Debug, Args)]
struct NewAuthority {
    /// The directory for key.pem and certificate.pem; made if it is not there.
    directory: PathBuf,
    /// Its name, for people.
    #[arg(long)]
    name: String,
    /// How long its certificate is valid.
    #[arg(long, value_name = "DAYS", default_value_t = 3650, value_parser = days())]
    days: u32,
    /// How.
    #[command(flatten)]
    making: Making,
}

/// `holdfast keys sign`
#[derive(Clone, Debug, Args)]
struct Sign {
    /// The directory of the authority.
    directory: PathBuf,
    /// The request.
    request: PathBuf,
    /// Where the certificate goes; standard output if left out.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// How long the certificate is valid.
    #[arg(long, value_name = "DAYS", default_value_t = 730, value_parser = days())]
    days: u32,
    /// Replace what is there.
    #[arg(long)]
    force: bool,
}

/// `holdfast keys revoke`
#[derive(Clone, Debug, Args)]
struct Revoke {
    /// The directory of the authority.
    directory: PathBuf,
    /// The certificate.
    certificate: PathBuf,
    /// When the next list is due. An older one counts here all the same; others may refuse it.
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = days())]
    days: u32,
}

/// What is valid for no day is of no use.
fn days() -> RangedI64ValueParser<u32> {
    value_parser!(u32).range(1..)
}

impl Keys {
    pub(crate) fn wants_json(&self) -> bool {
        self.json
    }

    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self.what {
            What::New(new) => new.run(self.json, out),
            What::Authority(authority) => authority.run(self.json, out),
            What::Sign(sign) => sign.run(self.json, out),
            What::Revoke(revoke) => revoke.run(self.json, out),
            What::Show { file } => print::items(&read(&file)?, &file, self.json, out),
            What::Fingerprint { file } => {
                let descriptions = read(&file)?.into_iter().filter_map(|item| describe(&item).ok());
                let found = descriptions.filter_map(|description| description.fingerprint).next();
                let error = KeysError::Missing("key");
                let found = found.ok_or(Failure::KeyFile { file, error })?;
                let words = holdfast_tls::fingerprint_words(&found);
                match self.json {
                    true => line(out, &json!({ "fingerprint": words }))?,
                    false => writeln!(out, "{words}")?,
                }
                Ok(())
            }
        }
    }
}

impl Making {
    fn key(&self) -> Result<PrivateKey, Failure> {
        let algorithm = if self.ed25519 { Algorithm::Ed25519 } else { Algorithm::P256 };
        Ok(PrivateKey::generate(algorithm)?)
    }

    /// Writes all, or nothing where something is in the way. The key is the first.
    fn keep(&self, directory: &Path, files: &[(&str, Item)]) -> Result<(), Failure> {
        make_directory(directory)?;
        if let Some((name, _)) = files.iter().find(|(name, _)| !self.force && directory.join(name).exists()) {
            return Err(KeysError::Exists(directory.join(name)).into());
        }
        for (name, item) in files {
            let access = if *name == KEY { Access::Secret } else { Access::Public };
            keys::write(&directory.join(name), pem(item).as_bytes(), access, self.force)?;
        }
        Ok(())
    }
}

/// Makes a directory for private keys, if it is not there.
pub(crate) fn make_directory(directory: &Path) -> Result<(), Failure> {
    let fault = |error| KeysError::File { path: directory.to_owned(), error };
    Ok(DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(fault)?)
}

impl New {
    fn run(self, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let key = self.making.key()?;
        let (validity, request) = (Validity::days(self.days), keys::request(&key, &self.names)?);
        let certificate = match &self.authority {
            Some(directory) => authority(directory)?.sign(&request, validity)?,
            None => keys::self_signed(&key, &self.names, validity)?,
        };
        let certificate = Item::Certificate(certificate);
        let description = describe(&certificate)?;
        let files = [
            (KEY, Item::PrivateKey(key.der().to_vec())),
            (CERTIFICATE, certificate),
            (REQUEST, Item::Request(request)),
        ];
        self.making.keep(&self.directory, &files)?;
        let files = files.map(|(name, _)| (name, self.directory.join(name)));
        print::made(&files, &description, json, out)
    }
}

impl NewAuthority {
    fn run(self, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let key = self.making.key()?;
        let der = key.der().to_vec();
        let authority = Authority::new(&self.name, key, Validity::days(self.days))?;
        let certificate = Item::Certificate(authority.certificate().to_vec());
        let description = describe(&certificate)?;
        let files = [(KEY, Item::PrivateKey(der)), (CERTIFICATE, certificate)];
        self.making.keep(&self.directory, &files)?;
        let files = files.map(|(name, _)| (name, self.directory.join(name)));
        print::made(&files, &description, json, out)
    }
}

impl Sign {
    fn run(self, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let authority = authority(&self.directory)?;
        let request = wanted(&self.request, "request", |item| match item {
            Item::Request(der) => Some(der),
            _ => None,
        })?;
        let signed = authority.sign(&request, Validity::days(self.days));
        let certificate = signed.map_err(|error| Failure::KeyFile { file: self.request, error })?;
        let certificate = Item::Certificate(certificate);
        let text = pem(&certificate);
        match self.out {
            Some(file) => {
                keys::write(&file, text.as_bytes(), Access::Public, self.force)?;
                print::made(&[(CERTIFICATE, file)], &describe(&certificate)?, json, out)
            }
            None if json => Ok(line(out, &json!({ "certificate": text }))?),
            None => Ok(out.write_all(text.as_bytes())?),
        }
    }
}

impl Revoke {
    fn run(self, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let authority = authority(&self.directory)?;
        let certificate = first_certificate(&self.certificate)?;
        let file = self.directory.join(REVOCATIONS);
        let list = |item| match item {
            Item::Revocations(der) => Some(der),
            _ => None,
        };
        let before = match file.exists() {
            true => Some(wanted(&file, "revocation list", list)?),
            false => None,
        };
        let list = authority.revoke(before.as_deref(), &certificate, Validity::days(self.days));
        let list = list.map_err(|error| Failure::KeyFile { file: self.certificate, error })?;
        let list = Item::Revocations(list);
        keys::write(&file, pem(&list).as_bytes(), Access::Public, true)?;
        print::made(&[(REVOCATIONS, file)], &describe(&list)?, json, out)
    }
}

/// What is in a file.
fn read(file: &Path) -> Result<Vec<Item>, Failure> {
    let contents = fs::read(file).map_err(|error| Failure::Unreadable { file: file.to_owned(), error })?;
    keys::read(&contents).map_err(|error| Failure::KeyFile { file: file.to_owned(), error })
}

/// The first of its kind in a file.
fn wanted(file: &Path, what: &'static str, is: impl Fn(Item) -> Option<Vec<u8>>) -> Result<Vec<u8>, Failure> {
    let found = read(file)?.into_iter().find_map(is);
    found.ok_or_else(|| Failure::KeyFile { file: file.to_owned(), error: KeysError::Missing(what) })
}

fn first_certificate(file: &Path) -> Result<Vec<u8>, Failure> {
    wanted(file, "certificate", |item| match item {
        Item::Certificate(der) => Some(der),
        _ => None,
    })
}

/// The authority in a directory.
fn authority(directory: &Path) -> Result<Authority, Failure> {
    let (key, certificate) = (directory.join(KEY), directory.join(CERTIFICATE));
    let der = wanted(&key, "private key", |item| match item {
        Item::PrivateKey(der) => Some(der),
        _ => None,
    })?;
    let der = PrivateKey::read(&der).map_err(|error| Failure::KeyFile { file: key, error })?;
    let read = Authority::read(&first_certificate(&certificate)?, der);
    read.map_err(|error| Failure::KeyFile { file: certificate, error })
}
