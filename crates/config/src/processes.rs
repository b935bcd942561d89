//! What a configuration may say follows from the processes that there are: each may have a level of its log and limits.

use std::net::IpAddr;

use holdfast_types::Afi;

use crate::{
    Config, Descriptor,
    describe::{self, Default::Else, Effect, Key, Table},
    descriptor::{Kept, NoRoom},
    keys,
};

/// A process, as far as a configuration speaks of it.
#[derive(Copy, Clone, Debug)]
pub struct ProcessKeys {
    /// Its name.
    pub name: &'static str,
    /// What it does: `speaks BGP`.
    pub does: &'static str,
    /// The section that belongs to it alone.
    pub section: Option<OwnSection>,
    /// The routing protocol that it speaks, if it brings its routes under its own name.
    pub routing: Option<Routing>,
}

/// A routing protocol of a process with a section for itself: it has the role `protocol`, and its process's name as its
/// name at the RIB, in policies and in `[rib.distance]`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Routing {
    /// Administrative distance of its routes, unless `[rib.distance]` has another.
    pub distance: u8,
    /// The datagrams that it may send and receive, on the interfaces that its section names.
    pub datagrams: &'static [Datagrams],
    /// The raw IP packets, likewise.
    pub raw: &'static [RawIp],
}

/// Datagrams of a protocol: UDP, sent and received at one port.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Datagrams {
    /// The port.
    pub port: u16,
    /// The group that is joined on each interface; its family is that of the datagrams.
    pub group: IpAddr,
    /// TTL or hop limit of what is sent.
    pub hops: u8,
}

/// Raw IP packets of a protocol: those of one protocol number. At most one of a family and a number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RawIp {
    /// The family.
    pub afi: Afi,
    /// The protocol number, in IPv6 the next header: one that is [for routing](holdfast_types::is_for_routing).
    pub protocol: u8,
    /// Groups of the family that are joined on each interface, 16 at most.
    pub groups: &'static [IpAddr],
    /// TTL or hop limit of what is sent.
    pub hops: u8,
}

/// A section of the configuration, `[key]`, that belongs to one process: its rows are all that is known of it here.
#[derive(Copy, Clone, Debug)]
pub struct OwnSection {
    /// Its key in the file.
    pub key: &'static str,
    /// What it may say. Its names are those of policies, of VRFs and of protocols whose routes may be redistributed.
    pub table: &'static Table,
    /// What the rows cannot say, as that two keys exclude each other: what is wrong. It is asked about values that fit the
    /// rows. None: nothing.
    pub check: Option<Check>,
    /// Whether the rest of a configuration needs the process although this section is not in the file: it runs then as with
    /// an empty one, so no key may be required. None: it never does.
    pub implied: Option<Implied>,
}

/// Says what is wrong with a section, of which the values fit the rows.
pub type Check = fn(&serde_json::Map<String, serde_json::Value>) -> Result<(), String>;

/// Says whether the rest of a configuration needs the process of a section. The sections of processes are not all read yet.
pub type Implied = fn(&Config) -> bool;

/// A section, and whose it is.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Owned {
    pub(crate) process: &'static str,
    pub(crate) section: OwnSection,
    pub(crate) routing: Option<Routing>,
}

/// The processes that every router has: they start all others.
const FIRST: [ProcessKeys; 2] = [
    ProcessKeys { name: "keeper", does: "starts the others", section: None, routing: None },
    ProcessKeys { name: "manager", does: "decides what runs", section: None, routing: None },
];

/// Different sets of protocols of others that a process can have read.
const MOST_SCHEMAS: usize = 128;

/// Those that were made of others, by these and the protocols.
static KNOWN: Kept<(usize, Vec<(String, usize)>), Schema> = Kept::new(MOST_SCHEMAS);

/// What a configuration of a router with certain processes may say.
///
/// Descriptions are static data; a schema is made once in a program, and once for each set of protocols of others. It is
/// never freed.
#[derive(Copy, Clone, Debug)]
pub struct Schema {
    all: &'static [ProcessKeys],
    file: &'static Table,
    processes: &'static [&'static str],
    sections: &'static [Owned],
}

impl Schema {
    /// The schema for a router of these processes, besides keeper and manager.
    pub fn new(processes: impl IntoIterator<Item = ProcessKeys>) -> Self {
        Self::of(FIRST.into_iter().chain(processes).collect::<Vec<_>>().leak())
    }

    /// The same with protocols of others, by name.
    ///
    /// # Errors
    /// Too many sets of them have been read.
    pub fn with(self, protocols: &[(String, &'static Descriptor)]) -> Result<Self, NoRoom> {
        if protocols.is_empty() {
            return Ok(self);
        }
        let place = |descriptor: &'static Descriptor| std::ptr::from_ref(descriptor) as usize;
        let names = protocols.iter().map(|(name, descriptor)| (name.clone(), place(descriptor)));
        let key = (std::ptr::from_ref(self.file) as usize, names.collect());
        let keys = |(name, descriptor): &(String, &'static Descriptor)| {
            let name: &'static str = name.clone().leak();
            let section = OwnSection { key: name, table: descriptor.section, check: None, implied: None };
            let routing = Some(descriptor.routing);
            ProcessKeys { name, does: &descriptor.does, section: Some(section), routing }
        };
        let make = || {
            Self::of(self.all.iter().copied().chain(protocols.iter().map(keys)).collect::<Vec<_>>().leak())
        };
        KNOWN.keep(key, make).copied()
    }

    fn of(all: &'static [ProcessKeys]) -> Self {
        let levels = all.iter().map(|process| {
            let doc = format!("of the process that {}", process.does);
            describe::key(process.name, keys::LEVEL, Else("`level`"), Effect::Reload, doc.leak())
        });
        // Nobody would start the keeper again when it has used up its memory.
        let limits = all.iter().skip(1).map(|process| describe::table(process.name, &keys::LIMITS));
        let log = with(&keys::LOG, "process", "The level of single processes.", levels.collect());
        let limits_doc = "What each process may use.";
        let sandbox = with(&keys::SANDBOX, "limits", limits_doc, limits.collect());
        let distances = all.iter().filter_map(|process| {
            let default = describe::Default::Is(process.routing?.distance.to_string().leak());
            let doc = format!("of the process that {}", process.does);
            Some(describe::key(process.name, keys::types::DISTANCE, default, Effect::Reload, doc.leak()))
        });
        let rib = grown(&keys::RIB, "distance", distances.collect());
        let file = keys::FILE.keys.iter().map(|key| match key.name {
            "log" => describe::table("log", log),
            "rib" => describe::table("rib", rib),
            "sandbox" => describe::table("sandbox", sandbox),
            _ => *key,
        });
        let owned = |process: &ProcessKeys| {
            Some(Owned { process: process.name, section: process.section?, routing: process.routing })
        };
        let sections: Vec<_> = all.iter().filter_map(owned).collect();
        let file = file.chain(sections.iter().map(|own| describe::table(own.section.key, own.section.table)));
        let names: Vec<_> = all.iter().map(|process| process.name).collect();
        Self {
            all,
            file: leaked(keys::FILE.doc, file.collect()),
            processes: names.leak(),
            sections: sections.leak(),
        }
    }

    /// The whole file.
    pub fn file(&self) -> &'static Table {
        self.file
    }

    /// Whether a process of this name has a section for itself.
    pub fn has_section(&self, process: &str) -> bool {
        self.sections.iter().any(|own| own.process == process)
    }

    /// The sections that belong to one process each.
    pub(crate) fn sections(&self) -> &'static [Owned] {
        self.sections
    }

    /// The processes that speak a routing protocol, by name.
    pub(crate) fn routing(&self) -> impl Iterator<Item = (&'static str, Routing)> + use<> {
        self.sections.iter().filter_map(|own| Some((own.process, own.routing?)))
    }

    /// The names of all processes, keeper and manager first.
    pub(crate) fn processes(&self) -> &'static [&'static str] {
        self.processes
    }
}

/// A table with one more, `name`, below it.
fn with(table: &Table, name: &'static str, doc: &'static str, keys: Vec<Key>) -> &'static Table {
    let below = describe::table(name, leaked(doc, keys));
    leaked(table.doc, table.keys.iter().copied().chain([below]).collect())
}

/// A table with more keys in the one that it has as `name`.
fn grown(table: &Table, name: &'static str, more: Vec<Key>) -> &'static Table {
    let keys = table.keys.iter().map(|key| match key.value.table() {
        Some(below) if key.name == name => {
            describe::table(name, leaked(below.doc, below.keys.iter().copied().chain(more.clone()).collect()))
        }
        _ => *key,
    });
    leaked(table.doc, keys.collect())
}

fn leaked(doc: &'static str, keys: Vec<Key>) -> &'static Table {
    Box::leak(Box::new(Table { doc, keys: keys.leak() }))
}
