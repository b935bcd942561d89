//! The part of the configuration that all routers have which may have the same sessions: what the store says of it, and what
//! this router does.
//!
//! The router with the sessions puts what it is about to run into the store first. A standby takes what it finds there, and
//! says so in the file of the lease. What is sealed in it only their managers can read.

use holdfast_api::stored::v1::Configuration;
use holdfast_restore::Names;
use holdfast_store::Operation;
use prost::Message;

use crate::draft::Draft;

/// Octets of a sealed text at most: it goes with other things into one batch.
pub(crate) const MOST_SEALED: usize = 768 << 10;

/// What is known of it.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// What runs here, as a number; 0: nobody has said so yet.
    runs: u64,
    /// What the store is to have: what runs here, or is about to.
    wanted: Option<Configuration>,
    /// Number and serial that a batch has put into the store, and the sequence of that batch.
    sent: Option<((u64, u64), u64)>,
    /// What the store had, of the router with the sessions, when it was read last.
    theirs: Option<Configuration>,
    /// The serial of what this router cannot take.
    refused: u64,
}

impl Sharing {
    /// The number of what runs here; 0: not known.
    pub(crate) fn runs(&self) -> u64 {
        self.runs
    }

    /// The serial of what this router cannot take; 0: there is nothing.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// The greatest serial that is known.
    pub(crate) fn serial(&self) -> u64 {
        let serials = [&self.wanted, &self.theirs].map(|one| one.as_ref().map_or(0, |one| one.serial));
        serials[0].max(serials[1])
    }

    /// This runs here.
    pub(crate) fn set_running(&mut self, configuration: Configuration) {
        self.runs = configuration.number;
        self.offer(configuration);
    }

    /// This is about to.
    pub(crate) fn offer(&mut self, configuration: Configuration) {
        self.wanted = Some(configuration);
    }

    /// What another router has is not taken here.
    pub(crate) fn refuse(&mut self, serial: u64) {
        self.refused = serial;
    }

    /// The store has this of the router with the sessions.
    pub(crate) fn hear(&mut self, theirs: Option<Configuration>) {
        self.theirs = theirs;
    }

    /// What is to be taken from the router with the sessions. Before it is known what runs here, nothing is.
    pub(crate) fn next(&self) -> Option<&Configuration> {
        let known = self.theirs.as_ref().filter(|theirs| !theirs.sealed.is_empty() && self.runs != 0);
        known.filter(|theirs| theirs.number != self.runs && theirs.serial != self.refused)
    }

    /// Whether the router with the sessions has given another one to those who wait for its sessions.
    pub(crate) fn is_bound(&self, number: u64) -> bool {
        self.theirs.as_ref().is_some_and(|theirs| !theirs.sealed.is_empty() && theirs.number != number)
    }

    /// A new generation has nothing yet.
    pub(crate) fn restart(&mut self) {
        self.sent = None;
    }

    /// Puts into a batch what the generation lacks; whether all fits.
    pub(crate) fn fill(&mut self, batch: &mut Draft, sequence: u64) -> bool {
        let Some(wanted) = &self.wanted else { return true };
        let this = (wanted.number, wanted.serial);
        if self.sent.is_some_and(|(sent, _)| sent == this) {
            return true;
        }
        let put = |name, value| Operation::Put { name, value };
        let both = [
            put(Names::configuration(), wanted.encode_to_vec()),
            put(Names::configuration_serial(), wanted.serial.to_le_bytes().to_vec()),
        ];
        let fits = batch.push_all(both).is_ok();
        if fits {
            self.sent = Some((this, sequence));
        }
        fits
    }

    /// Whether the store has the one that it is to have, when it has confirmed all up to this sequence.
    pub(crate) fn is_stored(&self, confirmed: u64) -> bool {
        let wanted = self.wanted.as_ref().map(|wanted| (wanted.number, wanted.serial));
        self.sent.is_some_and(|(sent, sequence)| Some(sent) == wanted && sequence <= confirmed)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_store::Batch;

    use super::*;

    fn configuration(number: u64) -> Configuration {
        Configuration { number, sealed: vec![7; 3], serial: 10 * number }
    }

    fn filled(sharing: &mut Sharing, sequence: u64) -> Vec<Operation> {
        let mut draft = Draft::new(Batch::new(1, 1, 1, sequence));
        assert!(sharing.fill(&mut draft, sequence));
        draft.into_batch().operations().to_vec()
    }

    #[test]
    fn what_is_about_to_run_is_written_once_in_each_generation() {
        let mut sharing = Sharing::default();
        assert!(filled(&mut sharing, 1).is_empty(), "nobody has said what runs");
        sharing.set_running(configuration(5));
        assert_eq!(filled(&mut sharing, 2).len(), 2);
        assert!(filled(&mut sharing, 3).is_empty());
        assert_eq!([1, 2].map(|confirmed| sharing.is_stored(confirmed)), [false, true]);
        sharing.offer(configuration(6));
        assert_eq!(sharing.runs(), 5);
        assert!(!sharing.is_stored(2));
        assert_eq!(filled(&mut sharing, 4).len(), 2);
        assert_eq!([3, 4].map(|confirmed| sharing.is_stored(confirmed)), [false, true]);
        // It did not come to that.
        sharing.set_running(configuration(5));
        assert_eq!(filled(&mut sharing, 5).len(), 2);
        sharing.restart();
        assert!(!sharing.is_stored(9));
        assert_eq!(filled(&mut sharing, 6).len(), 2);
        // The same, offered once more.
        sharing.offer(Configuration { serial: 99, ..configuration(5) });
        assert_eq!(filled(&mut sharing, 7).len(), 2);
    }

    #[test]
    fn a_batch_without_room_leaves_it_to_the_next_one() {
        let mut sharing = Sharing::default();
        sharing.set_running(Configuration { number: 5, sealed: vec![0; MOST_SEALED], serial: 1 });
        let mut draft = Draft::new(Batch::new(1, 1, 1, 1));
        let other = Operation::Put { name: Names::new(0).log(), value: vec![0; 512 << 10] };
        draft.push(other).expect("room");
        assert!(!sharing.fill(&mut draft, 1));
        assert_eq!(filled(&mut sharing, 2).len(), 2);
    }

    #[test]
    fn a_standby_takes_what_it_does_not_run_and_does_not_refuse() {
        let mut sharing = Sharing::default();
        sharing.hear(Some(configuration(5)));
        assert_eq!(sharing.next(), None, "what runs here is not known");
        assert_eq!(sharing.serial(), 50);
        sharing.set_running(configuration(4));
        assert_eq!(sharing.next().map(|next| next.number), Some(5));
        assert!(sharing.is_bound(4) && !sharing.is_bound(5));
        sharing.refuse(50);
        assert_eq!(sharing.next(), None);
        sharing.hear(Some(Configuration { serial: 51, ..configuration(5) }));
        assert!(sharing.next().is_some(), "it is offered once more");
        sharing.hear(Some(configuration(6)));
        assert_eq!(sharing.next().map(|next| next.number), Some(6));
        sharing.set_running(configuration(6));
        assert_eq!(sharing.next(), None);
        // Without a key it is only compared.
        sharing.hear(Some(Configuration { number: 7, ..Configuration::default() }));
        assert!(sharing.next().is_none() && !sharing.is_bound(6));
    }
}
