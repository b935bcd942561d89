//! Signed paths (RFC 8205), and a cache that has the keys: routers that sign, in memory, and `holdfast spki-cache`.

use std::{
    fs,
    net::SocketAddr,
    path::{Path as FilePath, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_bgp_wire::{NextHop, Origin, bgpsec::announce};
use holdfast_bgpsec_wire::{Nlri, Path, Segment, SignatureBlock, extend, octets_to_sign};
use holdfast_path_validation::{P256Signer, SUITE_P256, Signer};
use holdfast_tls::keys::{Algorithm, Item, PrivateKey, pem};
use holdfast_types::{Asn, Prefix, RouterKey};
use serde_json::json;

use crate::{netns::Namespace, router::binary};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A router that signs.
pub fn signer(asn: u32) -> Result<P256Signer> {
    P256Signer::generate(Asn(asn)).with_context(|| format!("a key of AS {asn}"))
}

/// A private key of a router under test: its file, PEM, and who signs with it.
pub fn private_key(asn: u32) -> Result<(String, P256Signer)> {
    let key = PrivateKey::generate(Algorithm::P256)?;
    let signer = P256Signer::from_der(Asn(asn), key.der())?;
    Ok((pem(&Item::PrivateKey(key.der().to_vec())), signer))
}

/// A segment that counts once.
pub fn segment(asn: Asn) -> Segment {
    Segment { pcount: 1, flags: 0, asn }
}

/// A segment of a path, and who signs it.
#[derive(Copy, Clone, Debug)]
pub struct Hop<'a> {
    /// What is added to Secure_Path.
    pub segment: Segment,
    /// Whose private key signs.
    pub signer: &'a P256Signer,
    /// Whose key the signature names.
    pub named: &'a P256Signer,
}

impl<'a> Hop<'a> {
    /// A router's own segment, which counts once.
    pub fn of(signer: &'a P256Signer) -> Self {
        Self { segment: segment(signer.asn()), signer, named: signer }
    }
}

/// The value of BGPsec_PATH over routers that each sign a segment of their AS for the next one, the origin first.
pub fn path(routers: &[&P256Signer], target: Asn, prefix: Prefix) -> Result<Vec<u8>> {
    let hops: Vec<_> = routers.iter().map(|router| Hop::of(router)).collect();
    path_of(&hops, &[SUITE_P256], target, prefix, &|_, signature| signature)
}

/// A path of any hops, with a block of each suite, whatever that is. `change` makes something else of a signature; it is told
/// of which hop it is, the origin's being 0.
pub fn path_of(
    hops: &[Hop<'_>],
    suites: &[u8],
    target: Asn,
    prefix: Prefix,
    change: &dyn Fn(usize, Vec<u8>) -> Vec<u8>,
) -> Result<Vec<u8>> {
    let nlri = Nlri::unicast(prefix);
    let mut value: Option<Vec<u8>> = None;
    for (at, hop) in hops.iter().enumerate() {
        let target = hops.get(at + 1).map_or(target, |next| next.segment.asn);
        let before = value.as_deref().map(Path::parse).transpose()?;
        let mut signatures = Vec::with_capacity(suites.len());
        for suite in suites {
            let block = before.as_ref().and_then(|path| path.blocks().find(|block| block.suite == *suite));
            let octets = octets_to_sign(before.as_ref().zip(block), *suite, hop.segment, target, &nlri);
            signatures.push(change(at, hop.signer.sign(&octets)?));
        }
        let new = suites.iter().zip(&signatures);
        let new =
            new.map(|(suite, signature)| SignatureBlock { suite: *suite, ski: hop.named.ski(), signature });
        value = Some(extend(before.as_ref(), hop.segment, &new.collect::<Vec<_>>())?);
    }
    value.context("a path has an AS at least")
}

/// A whole UPDATE that announces with a value of BGPsec_PATH.
pub fn update(path: &[u8], next_hop: NextHop, prefix: Prefix) -> Result<Vec<u8>> {
    announce(path, Origin::Igp, next_hop, prefix).context("no message has room for it")
}

/// `holdfast spki-cache` in a host, with routers' keys.
#[derive(Debug)]
pub struct SpkiCache {
    child: Option<Child>,
    directory: PathBuf,
    listen: SocketAddr,
}

impl SpkiCache {
    /// Starts it.
    pub fn start(host: &Namespace, listen: SocketAddr, keys: &[RouterKey]) -> Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("holdfast-lab-keys-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let mut cache = Self { child: None, directory, listen };
        cache.serve(keys)?;
        cache.run(host)?;
        Ok(cache)
    }

    /// Has it serve these keys from now on.
    pub fn serve(&self, keys: &[RouterKey]) -> Result<()> {
        let key = |key: &RouterKey| json!({ "asn": key.asn.0, "ski": key.ski.to_string(), "pubkey": STANDARD.encode(&key.spki) });
        let text = json!({ "bgpsec_keys": keys.iter().map(key).collect::<Vec<_>>() }).to_string();
        // Whole or not at all: it looks when it likes.
        let fresh = self.directory.with_extension("fresh");
        fs::write(&fresh, text)?;
        Ok(fs::rename(fresh, self.directory.join("keys.json"))?)
    }

    fn run(&mut self, host: &Namespace) -> Result<()> {
        let program = binary()?;
        let mut command: Command =
            host.command(FilePath::new(&program).to_str().context("the path is text")?);
        command.args(["spki-cache", "--listen", &self.listen.to_string(), "--look", "1", "--notify", "1"]);
        command.arg(&self.directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().context("starting spki-cache")?);
        Ok(())
    }

    /// kill -9, and another one takes its place.
    pub fn kill_and_start(&mut self, host: &Namespace) -> Result<()> {
        self.kill();
        self.run(host)
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for SpkiCache {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
