//! Private keys, seeds, and where secrets of sessions may be written: what came from the manager past everybody's eyes.

use std::{
    cell::{Cell, RefCell},
    fs::File,
    os::fd::OwnedFd,
};

use holdfast_api::transport::v1::Secrets as Told;
use holdfast_process::unseal;
use holdfast_tls::{Identity, KeyLog, Seeds, TlsError};
use holdfast_xrl::XrlError;
use prost::Message;
use tokio::sync::watch;

/// What is kept for all doors of the process.
pub(crate) struct Secrets {
    private_key: RefCell<Vec<u8>>,
    key_log: RefCell<Option<KeyLog>>,
    seeds: watch::Sender<Seeds>,
    /// How often the key or the log has become another one.
    version: Cell<u64>,
}

impl Default for Secrets {
    /// Without a key, and with seeds that nobody else has.
    fn default() -> Self {
        Self {
            private_key: RefCell::default(),
            key_log: RefCell::default(),
            seeds: watch::Sender::new(Seeds::random()),
            version: Cell::default(),
        }
    }
}

impl Secrets {
    /// Takes them out of a sealed memfd; the descriptor behind it, if any, is where secrets of sessions are written.
    ///
    /// # Errors
    /// `InvalidArgument` for what cannot be read; then nothing has changed.
    pub(crate) fn keep(&self, descriptors: Vec<OwnedFd>) -> Result<(), XrlError> {
        let invalid = |text: &str| XrlError::invalid_argument(text);
        let mut descriptors = descriptors.into_iter();
        let sealed = descriptors.next().ok_or_else(|| invalid("no descriptor came with the call"))?;
        let told = unseal(sealed).and_then(|octets| Told::decode(&*octets).ok());
        let told = told.ok_or_else(|| invalid("the descriptor is no sealed memory with secrets"))?;
        let seeds = match told.seeds.as_slice() {
            [] => None,
            seeds => Some(Seeds::new(seeds).map_err(|error| invalid(&error.to_string()))?),
        };
        let log = descriptors.next().map(|file| KeyLog::new(File::from(file)));
        if log.is_some() || self.key_log.borrow().is_some() || *self.private_key.borrow() != told.private_key
        {
            self.version.set(self.version.get() + 1);
        }
        self.private_key.replace(told.private_key);
        self.key_log.replace(log);
        if let Some(seeds) = seeds {
            self.seeds.send_replace(seeds);
        }
        Ok(())
    }

    /// Nothing has to be proven any more. What connections need they have.
    pub(crate) fn forget(&self) {
        self.private_key.take();
        self.key_log.take();
        self.version.set(self.version.get() + 1);
    }

    /// What we show with these certificates; `None`: we have no key.
    ///
    /// # Errors
    /// They do not go with the key.
    pub(crate) fn identity(&self, certificates: &[Vec<u8>]) -> Result<Option<Identity>, TlsError> {
        let key = self.private_key.borrow();
        (!key.is_empty()).then(|| Identity::new(certificates, &key)).transpose()
    }

    /// Where secrets of sessions are written, if the configuration asks for it.
    pub(crate) fn key_log(&self) -> Option<KeyLog> {
        self.key_log.borrow().clone()
    }

    /// Tells the key and the log from others that there have been.
    pub(crate) fn version(&self) -> u64 {
        self.version.get()
    }

    /// What keys of QUIC derive from, now and from then on.
    pub(crate) fn seeds(&self) -> watch::Receiver<Seeds> {
        self.seeds.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_process::seal;

    use super::*;

    fn memory(told: &Told) -> OwnedFd {
        seal(&told.encode_to_vec()).expect("memory")
    }

    #[test]
    fn what_is_sealed_is_read_from_its_beginning() {
        let secrets = Secrets::default();
        let told = Told { private_key: vec![1], seeds: vec![vec![2; 64]], ..Told::default() };
        secrets.keep(vec![memory(&told)]).expect("taken");
        assert_eq!((secrets.private_key.borrow().clone(), secrets.version()), (vec![1], 1));
        let derived = |seeds: &Seeds| seeds.derive(0, "a");
        let expected = Seeds::new(&[vec![2; 64]]).expect("a seed");
        assert_eq!(derived(&secrets.seeds().borrow()), derived(&expected));
        secrets.keep(vec![memory(&told)]).expect("taken again");
        assert_eq!(secrets.version(), 1, "the same key");
        secrets.keep(vec![memory(&Told::default())]).expect("taken away");
        assert!(secrets.identity(&[]).expect("nothing is wrong").is_none());
    }

    #[test]
    fn what_somebody_could_still_change_is_refused() {
        let secrets = Secrets::default();
        let told = Told { private_key: vec![1], ..Told::default() };
        let file = File::open("/dev/null").expect("a file");
        secrets.keep(vec![file.into()]).expect_err("not sealed");
        secrets.keep(Vec::new()).expect_err("nothing");
        let short = Told { seeds: vec![vec![2; 3]], ..told };
        secrets.keep(vec![memory(&short)]).expect_err("no seed");
        assert!(secrets.private_key.borrow().is_empty());
    }
}
