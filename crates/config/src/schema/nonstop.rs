//! Where sessions are kept that outlive their host.

use std::{
    marker::PhantomData,
    net::{IpAddr, SocketAddr},
};

use super::{KeyFile, Transport, Trust};
use crate::{
    describe::Type,
    keyed::{Maybe, MaybeNumber, OneOf, keys, number, words},
};

const DIRECTORY: Type = Type::Text("absolute path", "/var/lib/holdfast/nonstop");

words! {
    /// What keeps sessions.
    pub enum StoreKind = Redis "redis" {
        /// A server that speaks the protocol of Redis.
        Redis = "redis",
        /// Files of this host.
        File = "file",
        /// Memory of the process that writes the store: it goes with that process.
        Memory = "memory",
    }
}

words! {
    /// What becomes of sessions that the store cannot keep any more.
    pub enum OnStoreLoss = Degrade "degrade" {
        /// They go on, and end with this host.
        Degrade = "degrade",
        /// They end.
        StepDown = "step-down",
    }
}

words! {
    /// What a standby has ready before it takes over.
    pub enum Standby = Cold "cold" {
        /// Nothing: it reads the store when it takes over.
        Cold = "cold",
        /// The routes: it follows the store, and the kernel has them.
        Preheated = "preheated",
    }
}

keys! {
    /// `[nonstop.store]`: where sessions are kept, so that they outlive this host.
    pub struct Store {
        "directory" directory: Option<String> = Maybe(DIRECTORY, "required for `\"file\"`"), Reload, "where the files of the store are, for `kind = \"file\"`; it has to be there";
        "store-timeout" store_timeout: Option<u32> = MaybeNumber(1, 3600, "a third of the shortest hold time"), Reload, "seconds for which sessions wait for a store that does not answer";
        "on-store-loss" on_store_loss: OnStoreLoss = OneOf::<OnStoreLoss>(PhantomData), Reload, "what follows then: `\"degrade\"`: sessions go on without protection; `\"step-down\"`: they end";
        "lease-directory" lease_directory: Option<String> = Maybe(DIRECTORY, "the runtime directory"), Reload, "where the lock file `lease` is, which all routers of the machine share that may have these sessions; it has to be there";
        "wait-replicas" wait_replicas: u8 = number!(0..=16, 0), Reload, "replicas of the server that have to have what is acknowledged, for `kind = \"redis\"`";
        + /// `standby` of `[nonstop]`: what a router that was started as a standby has ready.
        standby: Standby = Standby::Cold;
        + /// `[[nonstop.address]]`, each once in its table.
        service_addresses: Vec<ServiceAddress> = Vec::new();
        + /// What keeps them.
        kind: StoreKind = StoreKind::Redis;
        + /// Where servers listen, each once: the first that can be reached is asked. Of `"redis"`, one at least; else none.
        addresses: Vec<SocketAddr> = Vec::new();
        + /// As whom we log in; `None`: as the server's default user.
        user: Option<String> = None;
        + /// The password; `None`: we do not log in.
        password: Option<KeyFile> = None;
        + /// A secret that all routers have which may have these sessions; `None`: commits do not reach them.
        key: Option<KeyFile> = None;
        + /// TCP or TLS.
        transport: Transport = Transport::Tcp;
        + /// What a server has to prove over TLS: never nothing there.
        trust: Trust = Trust::default();
    }
}

/// An address that goes with the sessions, from router to router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceAddress {
    /// Ours.
    pub address: IpAddr,
    /// Of the network that is reached directly.
    pub length: u8,
    /// Where it is.
    pub interface: String,
    /// The VRF of the interface; `None`: the default table.
    pub vrf: Option<String>,
}

impl Store {
    /// What those who connect its servers call each of them, in their order: no name of a BGP peer has a space.
    pub fn peer_names(&self) -> impl Iterator<Item = (String, SocketAddr)> {
        self.addresses.iter().map(|address| (format!("store {address}"), *address))
    }
}
