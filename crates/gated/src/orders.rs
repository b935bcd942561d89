//! Where the gate stands: as the replicator says, and as a note at the keeper for the next life of this process.

use std::collections::BTreeSet;

use holdfast_api::gate::v1::AttachRequest;
use holdfast_gate::nfnetlink::MOST_PORTS;

/// Most VRFs.
const MOST_VRFS: usize = 256;
/// Longest name of a VRF, and of a namespace.
const LONGEST_NAME: usize = 255;

/// A VRF with a network namespace, or the default table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Vrf {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) netns: String,
}

/// What the replicator has ordered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Orders {
    pub(crate) queue: u16,
    pub(crate) ports: Vec<u16>,
    pub(crate) vrfs: Vec<Vrf>,
}

impl Orders {
    /// Reads a request; what is wrong with it.
    pub(crate) fn read(request: &AttachRequest) -> Result<Self, &'static str> {
        let queue = u16::try_from(request.queue).map_err(|_| "there is no such queue")?;
        let ports: BTreeSet<_> = request
            .ports
            .iter()
            .map(|port| u16::try_from(*port))
            .collect::<Result<_, _>>()
            .map_err(|_| "there is no such port")?;
        let vrfs: Vec<_> = request
            .vrfs
            .iter()
            .map(|vrf| Vrf { number: vrf.number, name: vrf.name.clone(), netns: vrf.netns.clone() })
            .collect();
        let orders = Self { queue, ports: ports.into_iter().collect(), vrfs };
        orders.check()?;
        Ok(orders)
    }

    /// The default table, and all VRFs.
    pub(crate) fn all<'a>(&'a self, default: &'a Vrf) -> impl Iterator<Item = &'a Vrf> {
        std::iter::once(default).chain(&self.vrfs)
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.ports.is_empty() || self.ports.len() > MOST_PORTS || self.ports.contains(&0) {
            return Err("the gate stands at 1 to 64 ports");
        }
        if self.vrfs.len() > MOST_VRFS {
            return Err("there are too many VRFs");
        }
        let plain =
            |name: &str| (1..=LONGEST_NAME).contains(&name.len()) && !name.contains([' ', '\n', '/', '\0']);
        let numbers: BTreeSet<_> = self.vrfs.iter().map(|vrf| vrf.number).collect();
        let names: BTreeSet<_> = self.vrfs.iter().map(|vrf| &vrf.name).collect();
        if numbers.len() != self.vrfs.len() || names.len() != self.vrfs.len() || numbers.contains(&0) {
            return Err("each VRF has a name and a number of its own, and no number is 0");
        }
        let are_plain = self.vrfs.iter().all(|vrf| plain(&vrf.name) && plain(&vrf.netns));
        are_plain.then_some(()).ok_or("a VRF or its namespace has no name")
    }

    /// As a note: the queue, a line of ports, a line for each VRF.
    pub(crate) fn note(&self) -> String {
        let ports: Vec<_> = self.ports.iter().map(u16::to_string).collect();
        let vrfs = self.vrfs.iter().map(|vrf| format!("\n{} {} {}", vrf.number, vrf.name, vrf.netns));
        format!("{}\n{}{}", self.queue, ports.join(" "), vrfs.collect::<String>())
    }

    /// Reads a note of the process before; `None`: it is none.
    pub(crate) fn of_note(note: &str) -> Option<Self> {
        let mut lines = note.lines();
        let queue = lines.next()?.parse().ok()?;
        let ports = lines.next()?.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        let vrf = |line: &str| {
            let mut words = line.split(' ');
            let number = words.next()?.parse().ok()?;
            let (name, netns) = (words.next()?.to_owned(), words.next()?.to_owned());
            words.next().is_none().then_some(Vrf { number, name, netns })
        };
        let orders = Self { queue, ports, vrfs: lines.map(vrf).collect::<Option<_>>()? };
        orders.check().is_ok().then_some(orders)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_api::gate::v1::Vrf as Said;

    use super::*;

    fn request() -> AttachRequest {
        let vrf = |name: &str, number| Said { name: name.to_owned(), number, netns: format!("ns-{name}") };
        AttachRequest { ports: vec![1179, 179, 179], queue: 7, vrfs: vec![vrf("blue", 1), vrf("red", 2)] }
    }

    #[test]
    fn a_note_says_what_was_ordered() {
        let orders = Orders::read(&request()).expect("they are right");
        assert_eq!((orders.queue, orders.ports.as_slice(), orders.vrfs.len()), (7, &[179, 1179][..], 2));
        assert_eq!(Orders::of_note(&orders.note()), Some(orders.clone()));
        let without = Orders { vrfs: Vec::new(), ..orders };
        assert_eq!(Orders::of_note(&without.note()), Some(without));
        for wrong in
            ["", "7", "7\n", "7\n0", "70000\n179", "7\n179\n1 blue", "7\n179\n0 blue ns", "7\n179\n1 a b c"]
        {
            assert_eq!(Orders::of_note(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn orders_that_cannot_be_carried_out_are_refused() {
        let wrong = |change: fn(&mut AttachRequest)| {
            let mut request = request();
            change(&mut request);
            assert!(Orders::read(&request).is_err(), "{request:?}");
        };
        wrong(|request| request.ports.clear());
        wrong(|request| request.ports = (1..=65).collect());
        wrong(|request| request.ports.push(0));
        wrong(|request| request.ports.push(65_536));
        wrong(|request| request.queue = 65_536);
        wrong(|request| request.vrfs[0].number = 0);
        wrong(|request| request.vrfs[0].number = 2);
        wrong(|request| request.vrfs[0].name = "red".to_owned());
        wrong(|request| request.vrfs[0].netns = "a/b".to_owned());
        wrong(|request| request.vrfs[0].netns = String::new());
        wrong(|request| {
            request.vrfs = (1..=257)
                .map(|number| Said { number, name: number.to_string(), netns: "a".to_owned() })
                .collect();
        });
    }
}
