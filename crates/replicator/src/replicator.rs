//! What the process is given besides its configuration.

use std::{cell::RefCell, os::fd::OwnedFd};

use holdfast_api::replicator::v1::Secrets;
use holdfast_process::unseal;
use holdfast_xrl::XrlError;
use prost::Message;
use rustix::fs::fstat;

/// The lock file and the two files of a store.
const MOST_FILES: usize = 3;

/// Secrets and files.
#[derive(Default)]
pub(crate) struct Replicator {
    secrets: RefCell<Secrets>,
    /// The lock file of the lease, then those of the store.
    files: RefCell<Vec<OwnedFd>>,
}

impl Replicator {
    /// With a file that the process before has had.
    pub(crate) fn with(file: Option<OwnedFd>) -> Self {
        Self { files: RefCell::new(file.into_iter().collect()), ..Self::default() }
    }

    /// The password, and copies of the files: what a configuration comes with.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub(crate) fn given(&self) -> Result<(Vec<u8>, Vec<OwnedFd>), XrlError> {
        let files = self.files.borrow().iter().map(OwnedFd::try_clone).collect::<Result<_, _>>();
        let files = files.map_err(|error| XrlError::internal(format!("a file: {error}")))?;
        Ok((self.secrets.borrow().password.clone(), files))
    }

    /// Takes the password out of sealed memory.
    ///
    /// # Errors
    /// `InvalidArgument` for what cannot be read; then nothing has changed.
    pub(crate) fn keep(&self, descriptors: Vec<OwnedFd>) -> Result<(), XrlError> {
        let memory = descriptors.into_iter().next();
        let told = memory.and_then(unseal).and_then(|octets| Secrets::decode(&*octets).ok());
        let told = told
            .ok_or_else(|| XrlError::invalid_argument("the descriptor is no sealed memory with secrets"))?;
        self.secrets.replace(told);
        Ok(())
    }

    /// Takes files in the place of those before. One that is there already stays open as it was: its lock goes with it.
    ///
    /// # Errors
    /// `InvalidArgument` for none, or too many; then nothing has changed.
    pub(crate) fn take(&self, descriptors: Vec<OwnedFd>) -> Result<(), XrlError> {
        if !(1..=MOST_FILES).contains(&descriptors.len()) {
            return Err(XrlError::invalid_argument(format!("{} files came", descriptors.len())));
        }
        let mut before = self.files.take();
        let files = descriptors.into_iter().map(|new| {
            let place = before.iter().position(|old| is_same(old, &new));
            place.map_or(new, |place| before.swap_remove(place))
        });
        let files = files.collect();
        self.files.replace(files);
        Ok(())
    }
}

/// Whether both are descriptors of one file.
fn is_same(a: &OwnedFd, b: &OwnedFd) -> bool {
    let identity = |file| fstat(file).map(|found| (found.st_dev, found.st_ino));
    matches!((identity(a), identity(b)), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsRawFd};

    use super::*;

    fn file(path: &str) -> OwnedFd {
        File::open(path).expect("it is there").into()
    }

    #[test]
    fn a_file_that_is_there_stays_open_as_it_was() {
        let replicator = Replicator::default();
        let (null, zero) = (file("/dev/null"), file("/dev/zero"));
        let first = null.as_raw_fd();
        replicator.take(vec![null]).expect("taken");
        replicator.take(vec![file("/dev/null"), zero]).expect("taken");
        let numbers: Vec<_> = replicator.files.borrow().iter().map(AsRawFd::as_raw_fd).collect();
        assert_eq!((numbers.len(), numbers[0]), (2, first));
        for wrong in [Vec::new(), (0..4).map(|_| file("/dev/null")).collect()] {
            replicator.take(wrong).expect_err("refused");
        }
        assert_eq!(replicator.files.borrow().len(), 2, "nothing has changed");
    }

    #[test]
    fn what_is_not_sealed_is_no_secret() {
        let replicator = Replicator::default();
        let told = Secrets { password: b"hunter2".to_vec() };
        let memory = holdfast_process::seal(&told.encode_to_vec()).expect("memory");
        replicator.keep(vec![memory]).expect("kept");
        for wrong in [vec![], vec![file("/dev/null")]] {
            replicator.keep(wrong).expect_err("refused");
        }
        assert_eq!(*replicator.secrets.borrow(), told);
    }
}
