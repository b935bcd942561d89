//! Where a door listens becomes what is configured.

use std::{net::SocketAddr, rc::Rc};

use holdfast_transport::Protocol;

use crate::{
    door::{ConnectionBroker, Open},
    entry::Entry,
    listen, quic,
};

impl ConnectionBroker {
    pub(crate) fn listen_at(self: &Rc<Self>, addresses: &[SocketAddr], quic: &[(Protocol, u16)]) {
        let mut wanted: Vec<_> = addresses.iter().map(|address| (Protocol::Tcp, *address)).collect();
        for &(protocol, port) in quic {
            let at = |address: &SocketAddr| (protocol, SocketAddr::new(address.ip(), port));
            wanted.extend(addresses.iter().map(at));
        }
        let mut listeners = self.listeners.borrow_mut();
        // One that cannot be told whom to hear begins anew, and says why it cannot.
        listeners.retain(|place, open| wanted.contains(place) && open.entry.filter(&self.peers()));
        for place @ (protocol, address) in wanted {
            let open = listeners.entry(place).or_insert_with(|| {
                let entry = Entry::new(self, protocol, address);
                let (door, at) = (Rc::clone(self), Rc::clone(&entry));
                let task = match protocol {
                    Protocol::Quic | Protocol::QuicS2n => self.spawn(quic::listen(door, at)),
                    _ => self.spawn(listen::listen(door, at)),
                };
                Open { entry, task }
            });
            open.entry.admit_by(self);
        }
    }
}
