//! The nexthop objects of our handles: what is wanted, and what the kernel has of it.

use std::{
    collections::{BTreeMap, HashMap},
    io,
};

use holdfast_fib::{Handle, NextHop, NextHops, TableId};
use rustix::io::Errno;

use crate::{
    message::{Batch, Message, kind},
    nexthop::{self, Exit, Form, Member, Object},
    request::{MESSAGES_MAX, Refusal, Requests},
    route::Target,
    slots::Fate,
};

/// The numbers of the nexthop objects of a table. The kernel has one set of objects for all tables of a network
/// namespace, so each table has numbers of its own there: by its number an object is known to belong to it, in the
/// next process too.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ObjectIds {
    first: u32,
    last: u32,
}

impl ObjectIds {
    /// Those of the main table. Other programs that let the kernel choose, or count from 1 as FRR does, stay far below.
    const MAIN: Self = Self { first: 75_000_000, last: 79_999_999 };

    /// Other tables whose numbers have different rests by this have different numbers of objects.
    pub const TABLES: u32 = 1 << 15;

    /// Those of a table. Of one that is not the main table: 65536, in the upper half, which other programs leave alone (FRR's
    /// end below).
    pub fn of(table: TableId) -> Self {
        if table == TableId::MAIN {
            return Self::MAIN;
        }
        let first = (1 << 31) | (table.0 % Self::TABLES) << 16;
        Self { first, last: first | 0xffff }
    }

    fn contains(self, object: &Object) -> bool {
        (self.first..=self.last).contains(&id(object))
    }

    /// The one after this, in a circle.
    fn after(self, id: u32) -> u32 {
        if (self.first..self.last).contains(&id) { id + 1 } else { self.first }
    }

    fn count(self) -> u32 {
        self.last - self.first + 1
    }
}

/// Members of a group, without doubles, in order.
type Ways = BTreeMap<Exit, u8>;

/// Handles and their objects. One exit is one object, shared by all groups that have it as a member.
pub(crate) struct Objects {
    ids: ObjectIds,
    entries: HashMap<Handle, Entry>,
    exits: HashMap<Exit, Shared>,
    /// Groups in the kernel that no handle stands for: left by an earlier process or by the time before a
    /// sync. A definition with the same members takes one over, so that its routes need not be written.
    orphans: HashMap<Ways, Vec<u32>>,
    last_id: u32,
    /// Handles whose routes have to be written again, and what the kernel has of these.
    rewrites: Vec<(Handle, Fate)>,
}

struct Entry {
    wanted: NextHops,
    installed: Installed,
    /// Routes were written with the handle, or refused for want of its objects.
    used: bool,
}

enum Installed {
    /// Routes cannot be written, for this reason.
    Nothing(String),
    Group(Group),
    /// Packets are dropped: a type of route, no object.
    Drop(Target),
}

struct Group {
    id: u32,
    ways: Ways,
}

struct Shared {
    id: u32,
    /// Groups that have it as a member.
    groups: u32,
}

/// After a refused first attempt everything is as before.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Attempt {
    First,
    Last,
}

/// What came of a definition.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Defined {
    /// Members, or the whole, that the kernel refused.
    pub(crate) refused: Option<String>,
    /// Other handles may have lost what they had.
    pub(crate) compared: bool,
}

/// One attempt to define a handle.
struct Step<'a> {
    kernel: &'a mut Requests,
    /// As in [`Entry`].
    used: bool,
    attempt: Attempt,
    defined: Defined,
    /// What the kernel has of the handle's routes, if they have to be written again.
    rewrite: Option<Fate>,
}

impl Step<'_> {
    fn nothing(&self) -> Installed {
        let refused = self.defined.refused.clone();
        Installed::Nothing(refused.unwrap_or_else(|| "next hops without a member".to_owned()))
    }
}

impl Objects {
    /// None yet.
    pub(crate) fn new(ids: ObjectIds) -> Self {
        let (entries, exits, orphans) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { ids, entries, exits, orphans, last_id: 0, rewrites: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Every handle, and why the kernel has nothing for it, if so.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (Handle, Option<&str>)> {
        self.entries.iter().map(|(handle, entry)| (*handle, entry.refused()))
    }

    /// Why the kernel has nothing for the handle, if so.
    pub(crate) fn why_refused(&self, handle: Handle) -> Option<&str> {
        self.entries.get(&handle).and_then(Entry::refused)
    }

    /// Where routes of the handle lead.
    ///
    /// # Errors
    /// Why they lead nowhere, as text for the operator.
    pub(crate) fn target(&mut self, handle: Handle) -> Result<Target, String> {
        let entry =
            self.entries.get_mut(&handle).ok_or_else(|| format!("next hops {} are not defined", handle.0))?;
        entry.used = true;
        match &entry.installed {
            Installed::Group(group) => Ok(Target::Group(group.id)),
            Installed::Drop(target) => Ok(*target),
            Installed::Nothing(reason) => Err(reason.clone()),
        }
    }

    /// Defines a handle, or what it stands for from now on.
    pub(crate) fn define(
        &mut self,
        kernel: &mut Requests,
        handle: Handle,
        wanted: &NextHops,
    ) -> io::Result<Defined> {
        let first = self.attempt(kernel, handle, wanted, Attempt::First)?;
        if first.refused.is_none() {
            return Ok(first);
        }
        // The kernel may have deleted an object behind our back: look, and try once more.
        self.compare(kernel)?;
        let last = self.attempt(kernel, handle, wanted, Attempt::Last)?;
        Ok(Defined { refused: last.refused, compared: true })
    }

    fn attempt(
        &mut self,
        kernel: &mut Requests,
        handle: Handle,
        wanted: &NextHops,
        attempt: Attempt,
    ) -> io::Result<Defined> {
        let old = self.entries.remove(&handle);
        let used = old.as_ref().is_some_and(|entry| entry.used);
        let old = old.map(|entry| entry.installed);
        let mut step = Step { kernel, used, attempt, defined: Defined::default(), rewrite: None };
        let installed = match wanted {
            NextHops::Forward(members) => self.forward(&mut step, ways(members), old)?,
            NextHops::Blackhole => self.drop_packets(&mut step, Target::Blackhole, old)?,
            NextHops::Unreachable => self.drop_packets(&mut step, Target::Unreachable, old)?,
        };
        let Step { defined, rewrite, .. } = step;
        self.rewrites.extend(rewrite.map(|fate| (handle, fate)));
        self.entries.insert(handle, Entry { wanted: wanted.clone(), installed, used });
        Ok(defined)
    }

    /// Forgets a handle and deletes its group, with whatever routes still use it. `keep_group`: leaves the
    /// group as an orphan, because routes of before a sync may use it.
    pub(crate) fn undefine(
        &mut self,
        kernel: &mut Requests,
        handle: Handle,
        keep_group: bool,
    ) -> io::Result<()> {
        match self.entries.remove(&handle).map(|entry| entry.installed) {
            Some(Installed::Group(group)) if keep_group => self.orphan(group),
            Some(Installed::Group(group)) => self.delete_group(kernel, group)?,
            Some(Installed::Nothing(_) | Installed::Drop(_)) | None => {}
        }
        Ok(())
    }

    /// Forgets all handles and takes stock of what the kernel has of ours.
    pub(crate) fn begin_sync(&mut self, kernel: &mut Requests) -> io::Result<()> {
        self.entries.clear();
        self.rewrites.clear();
        self.compare(kernel)
    }

    /// Deletes the groups that no handle stands for, when there is no route by them any more, and the exits without a group.
    pub(crate) fn tidy(&mut self, kernel: &mut Requests) -> io::Result<()> {
        let orphans: Vec<u32> = std::mem::take(&mut self.orphans).into_values().flatten().collect();
        delete_all(kernel, &orphans)?;
        self.compare(kernel)?;
        let unused = self.exits.extract_if(|_, shared| shared.groups == 0).map(|(_, shared)| shared.id);
        let unused: Vec<u32> = unused.collect();
        delete_all(kernel, &unused)
    }

    /// Deletes every object of ours, and with them the routes that use them.
    pub(crate) fn clear(&mut self, kernel: &mut Requests) -> io::Result<()> {
        let objects = self.dump(kernel)?;
        let groups =
            objects.iter().filter_map(|object| matches!(object, Object::Group(..)).then_some(id(object)));
        let exits =
            objects.iter().filter_map(|object| matches!(object, Object::Exit(..)).then_some(id(object)));
        delete_all(kernel, &groups.collect::<Vec<_>>())?;
        delete_all(kernel, &exits.collect::<Vec<_>>())?;
        *self = Self { last_id: self.last_id, ..Self::new(self.ids) };
        Ok(())
    }

    /// Compares with the kernel, which deletes objects without a word, and keeps what it has.
    pub(crate) fn compare(&mut self, kernel: &mut Requests) -> io::Result<()> {
        let mut exits = HashMap::new();
        let mut groups = HashMap::new();
        for object in self.dump(kernel)? {
            match object {
                Object::Exit(id, exit) => drop(exits.insert(id, exit)),
                Object::Group(id, members) => drop(groups.insert(id, members)),
            }
        }
        self.exits = exits.iter().map(|(id, exit)| (*exit, Shared { id: *id, groups: 0 })).collect();
        let ways = |members: Vec<Member>| -> Ways {
            members.iter().filter_map(|member| Some((*exits.get(&member.id)?, member.extra_weight))).collect()
        };
        for (handle, entry) in &mut self.entries {
            let Installed::Group(group) = &mut entry.installed else { continue };
            match groups.remove(&group.id) {
                Some(members) => group.ways = ways(members),
                None => {
                    entry.installed = Installed::Nothing("the kernel took the next hops away".into());
                    self.rewrites.push((*handle, Fate::Lost));
                }
            }
        }
        self.orphans.clear();
        for (id, members) in groups {
            self.orphans.entry(ways(members)).or_default().push(id);
        }
        self.count_groups();
        Ok(())
    }

    /// Whether any handle leads through the interface.
    pub(crate) fn leads_through(&self, interface: u32) -> bool {
        self.exits.keys().any(|exit| exit.interface == interface)
    }

    /// Tries again to install the handles of which the kernel does not have everything: how many have more than before.
    pub(crate) fn retry(&mut self, kernel: &mut Requests) -> io::Result<u64> {
        let incomplete = self.entries.iter().filter(|(_, entry)| !entry.is_complete());
        let incomplete: Vec<_> = incomplete.map(|(handle, entry)| (*handle, entry.wanted.clone())).collect();
        let mut completed = 0;
        for (handle, wanted) in incomplete {
            self.attempt(kernel, handle, &wanted, Attempt::Last)?;
            completed += u64::from(self.entries.get(&handle).is_some_and(Entry::is_complete));
        }
        Ok(completed)
    }

    /// The handles whose routes have to be written again since this was asked last.
    pub(crate) fn take_rewrites(&mut self) -> Vec<(Handle, Fate)> {
        std::mem::take(&mut self.rewrites)
    }

    /// Whether there are groups that no handle stands for.
    pub(crate) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Whether an object of this number is one of this table.
    pub(crate) fn is_ours(&self, object: &Object) -> bool {
        self.ids.contains(object)
    }

    fn count_groups(&mut self) {
        let installed = self.entries.values().filter_map(|entry| match &entry.installed {
            Installed::Group(group) => Some((&group.ways, 1)),
            Installed::Nothing(_) | Installed::Drop(_) => None,
        });
        let orphans = self.orphans.iter().map(|(ways, ids)| (ways, ids.len() as u32));
        for (ways, groups) in installed.chain(orphans) {
            for exit in ways.keys() {
                if let Some(shared) = self.exits.get_mut(exit) {
                    shared.groups += groups;
                }
            }
        }
    }

    /// A handle that drops packets. The group it had is left for the next sync: its routes lead through it.
    fn drop_packets(
        &mut self,
        step: &mut Step<'_>,
        target: Target,
        old: Option<Installed>,
    ) -> io::Result<Installed> {
        let changed = !matches!(&old, Some(Installed::Drop(before)) if *before == target);
        let rewritten = if matches!(old, Some(Installed::Nothing(_))) { Fate::Lost } else { Fate::Moved };
        match old {
            Some(Installed::Group(group)) if step.used => self.orphan(group),
            Some(Installed::Group(group)) => self.delete_group(step.kernel, group)?,
            Some(Installed::Nothing(_) | Installed::Drop(_)) | None => {}
        }
        if changed {
            step.rewrite = Some(rewritten);
        }
        Ok(Installed::Drop(target))
    }

    fn forward(
        &mut self,
        step: &mut Step<'_>,
        wanted: Ways,
        old: Option<Installed>,
    ) -> io::Result<Installed> {
        let (ways, members) = self.acquire(step, wanted)?;
        match (old, ways.is_empty()) {
            (Some(Installed::Group(group)), false) => self.replace(step, group, ways, &members),
            (Some(Installed::Group(group)), true) if step.attempt == Attempt::First => {
                Ok(Installed::Group(group))
            }
            (Some(Installed::Group(group)), true) => {
                self.delete_group(step.kernel, group)?;
                step.rewrite = Some(Fate::Lost);
                Ok(step.nothing())
            }
            (Some(Installed::Nothing(_)), false) => {
                step.rewrite = Some(Fate::Lost);
                self.create(step, ways, &members)
            }
            (Some(Installed::Drop(_)), false) => {
                step.rewrite = Some(Fate::Moved);
                self.create(step, ways, &members)
            }
            (None, false) => self.create(step, ways, &members),
            (Some(Installed::Nothing(_) | Installed::Drop(_)) | None, true) => Ok(step.nothing()),
        }
    }

    /// Changes the members of a group in place: its routes follow at once.
    fn replace(
        &mut self,
        step: &mut Step<'_>,
        group: Group,
        ways: Ways,
        members: &[Member],
    ) -> io::Result<Installed> {
        if group.ways == ways {
            self.release(step.kernel, &ways)?;
            return Ok(Installed::Group(group));
        }
        match step.kernel.one(|batch, sequence| nexthop::replace_group(batch, sequence, group.id, members))? {
            Ok(()) => {
                self.release(step.kernel, &group.ways)?;
                Ok(Installed::Group(Group { id: group.id, ways }))
            }
            Err(refusal) if refusal.errno == Errno::NOENT => {
                self.release(step.kernel, &group.ways)?;
                step.rewrite = Some(Fate::Lost);
                self.create(step, ways, members)
            }
            Err(refusal) if step.attempt == Attempt::First => {
                self.release(step.kernel, &ways)?;
                step.defined.refused = Some(refusal.to_string());
                Ok(Installed::Group(group))
            }
            Err(_) => self.create_beside(step, group, ways, members),
        }
    }

    /// A new group for a handle whose old one the kernel refuses to change, as when IPv6 routes use it and it
    /// is to get an IPv4 gateway. The routes keep the old one until they are written again.
    fn create_beside(
        &mut self,
        step: &mut Step<'_>,
        old: Group,
        ways: Ways,
        members: &[Member],
    ) -> io::Result<Installed> {
        let installed = self.create(step, ways, members)?;
        match installed {
            Installed::Group(_) if step.used => {
                self.orphan(old);
                step.rewrite = Some(Fate::Moved);
            }
            _ => {
                self.delete_group(step.kernel, old)?;
                step.rewrite = Some(Fate::Lost);
            }
        }
        Ok(installed)
    }

    fn create(&mut self, step: &mut Step<'_>, ways: Ways, members: &[Member]) -> io::Result<Installed> {
        if let Some(id) = self.orphans.get_mut(&ways).and_then(Vec::pop) {
            // The orphan has counted for its exits already.
            self.release(step.kernel, &ways)?;
            return Ok(Installed::Group(Group { id, ways }));
        }
        let write = |batch: &mut Batch, sequence, id| nexthop::create_group(batch, sequence, id, members);
        match self.with_new_id(step.kernel, write)? {
            Ok(id) => Ok(Installed::Group(Group { id, ways })),
            Err(refusal) => {
                self.release(step.kernel, &ways)?;
                step.defined.refused = Some(refusal.to_string());
                Ok(step.nothing())
            }
        }
    }

    /// Makes sure of the objects of the exits. What the kernel refuses is left out.
    fn acquire(&mut self, step: &mut Step<'_>, wanted: Ways) -> io::Result<(Ways, Vec<Member>)> {
        let mut ways = Ways::new();
        let mut members = Vec::with_capacity(wanted.len());
        for (exit, extra_weight) in wanted {
            match self.exit(step.kernel, exit)? {
                Ok(id) => {
                    ways.insert(exit, extra_weight);
                    members.push(Member { id, extra_weight });
                }
                Err(refusal) => step.defined.refused = Some(format!("{}: {refusal}", describe(exit))),
            }
        }
        Ok((ways, members))
    }

    /// The object of an exit, counted for one more group.
    fn exit(&mut self, kernel: &mut Requests, exit: Exit) -> io::Result<Result<u32, Refusal>> {
        if let Some(shared) = self.exits.get_mut(&exit) {
            shared.groups += 1;
            return Ok(Ok(shared.id));
        }
        let mut create = |form| {
            self.with_new_id(kernel, |batch, sequence, id| {
                nexthop::create_exit(batch, sequence, id, exit, form);
            })
        };
        let made = match create(Form::Usual)? {
            // An interface without IPv6: the object serves IPv4 routes only.
            Err(_) if exit.gateway.is_none() => create(Form::Ipv4)?,
            // An address of a cloud is alone in its network, and the gateway outside of it: the operator has named the interface.
            // IPv6 addresses go with their link, and come back: until then a gateway in their network is no such one.
            Err(refusal) if exit.gateway.is_some_and(|it| it.is_ipv4()) && is_unreachable(&refusal) => {
                create(Form::OnLink)?.or(Err(refusal))
            }
            made => made,
        };
        if let Ok(id) = made {
            self.exits.insert(exit, Shared { id, groups: 1 });
        }
        Ok(made)
    }

    /// Takes the exits from a group; those that have no other are deleted.
    fn release(&mut self, kernel: &mut Requests, ways: &Ways) -> io::Result<()> {
        let mut unused = Vec::new();
        for exit in ways.keys() {
            let Some(shared) = self.exits.get_mut(exit) else { continue };
            shared.groups = shared.groups.saturating_sub(1);
            if shared.groups == 0 {
                unused.push(shared.id);
                self.exits.remove(exit);
            }
        }
        delete_all(kernel, &unused)
    }

    fn orphan(&mut self, group: Group) {
        self.orphans.entry(group.ways).or_default().push(group.id);
    }

    fn delete_group(&mut self, kernel: &mut Requests, group: Group) -> io::Result<()> {
        delete_all(kernel, &[group.id])?;
        self.release(kernel, &group.ways)
    }

    /// Has something created under a number of ours that is free: which, or why not.
    fn with_new_id(
        &mut self,
        kernel: &mut Requests,
        write: impl Fn(&mut Batch, u32, u32),
    ) -> io::Result<Result<u32, Refusal>> {
        let mut tried = 0;
        loop {
            let id = self.ids.after(self.last_id);
            self.last_id = id;
            tried += 1;
            match kernel.one(|batch, sequence| write(batch, sequence, id))? {
                Ok(()) => return Ok(Ok(id)),
                Err(refusal) if refusal.errno == Errno::EXIST && tried < self.ids.count() => {}
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
    }

    /// What the kernel has under our numbers.
    fn dump(&self, kernel: &mut Requests) -> io::Result<Vec<Object>> {
        let ids = self.ids;
        let ours = |message: Message<'_>| nexthop::parse(message).filter(|object| ids.contains(object));
        kernel.dump_all(kind::GET_NEXTHOP, &[0; nexthop::HEADER], ours)
    }
}

impl Entry {
    fn refused(&self) -> Option<&str> {
        match &self.installed {
            Installed::Nothing(reason) => Some(reason),
            Installed::Group(_) | Installed::Drop(_) => None,
        }
    }

    fn is_complete(&self) -> bool {
        match (&self.wanted, &self.installed) {
            (NextHops::Forward(members), Installed::Group(group)) => group.ways == ways(members),
            (NextHops::Blackhole | NextHops::Unreachable, Installed::Drop(_)) => true,
            _ => false,
        }
    }
}

/// As the kernel wants them: it refuses doubles, so their weights are added up.
fn ways(members: &[NextHop]) -> Ways {
    let mut weights: BTreeMap<Exit, u16> = BTreeMap::new();
    for member in members {
        let exit = Exit { gateway: member.gateway, interface: member.interface };
        let weight = weights.entry(exit).or_default();
        *weight = weight.saturating_add(member.weight.max(1));
    }
    weights.into_iter().map(|(exit, weight)| (exit, (weight - 1).min(255) as u8)).collect()
}

/// Whether the kernel refuses a gateway because none of its routes reaches it on the link.
fn is_unreachable(refusal: &Refusal) -> bool {
    [Errno::INVAL, Errno::NETUNREACH, Errno::HOSTUNREACH].contains(&refusal.errno)
}

fn describe(exit: Exit) -> String {
    match exit.gateway {
        Some(gateway) => format!("{gateway} at interface {}", exit.interface),
        None => format!("interface {}", exit.interface),
    }
}

fn id(object: &Object) -> u32 {
    match object {
        Object::Exit(id, _) | Object::Group(id, _) => *id,
    }
}

/// Deletes objects. One that is gone already is as good.
fn delete_all(kernel: &mut Requests, ids: &[u32]) -> io::Result<()> {
    for ids in ids.chunks(MESSAGES_MAX) {
        let mut batch = Batch::new();
        for id in ids {
            nexthop::delete(&mut batch, kernel.next_sequence(), *id);
        }
        kernel.exchange(&mut batch, |_, _| {})?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(last: u8, weight: u16) -> NextHop {
        NextHop { gateway: Some([10, 0, 0, last].into()), interface: 2, weight }
    }

    #[test]
    fn tables_have_numbers_of_their_own_and_no_other_program_has_them() {
        let tables = [1, 100, 1000, 32_767, 1 << 15, u32::MAX];
        let mut firsts = tables.map(|table| ObjectIds::of(TableId(table)).first).to_vec();
        firsts.push(ObjectIds::of(TableId::MAIN).first);
        firsts.sort_unstable();
        // 32767 and the last one have the same rest.
        firsts.dedup();
        assert_eq!(firsts.len(), tables.len());
        assert!(ObjectIds::of(TableId(0)).first > ObjectIds::MAIN.last);
        let last = ObjectIds::of(TableId(32_767));
        assert_eq!((last.last, last.count()), (u32::MAX, 65_536));
        assert_eq!(
            (last.after(0), last.after(u32::MAX), last.after(last.first)),
            (last.first, last.first, last.first + 1)
        );
    }

    #[test]
    fn members_are_in_order_without_doubles_and_weights_in_range() {
        let ways = ways(&[hop(2, 0), hop(1, 7), hop(2, 3), hop(3, 1000)]);
        let extra: Vec<u8> = ways.values().copied().collect();
        assert_eq!(extra, [6, 3, 255]);
    }
}
