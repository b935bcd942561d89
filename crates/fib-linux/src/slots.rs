//! Numbers that the mirror keeps for next hops: a slot stands for one handle with one target.
//!
//! When a handle comes to have another target, or when the kernel drops its group with all routes, its slot is retired and
//! the handle gets another one. So the routes that have to be written again are exactly those in retired slots, and no
//! route that was written since is among them.

use std::collections::HashMap;

use holdfast_fib::Handle;

use crate::route::Target;

/// Slots at once: a value of the mirror has no room for more.
pub(crate) const MOST_SLOTS: usize = 1 << 28;

/// A handle with one target.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slot(pub(crate) u32);

/// What the kernel has of the routes in a slot.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// As they were written.
    Current,
    /// None: the kernel dropped them with their group.
    Lost,
    /// All, by a target that they are not to have any more.
    Moved,
}

#[derive(Copy, Clone, Debug)]
struct Held {
    handle: Handle,
    /// `None`: the kernel refuses the next hops.
    target: Option<Target>,
    routes: u32,
    fate: Fate,
}

/// All slots.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    held: Vec<Held>,
    free: Vec<Slot>,
    current: HashMap<Handle, Slot>,
    /// Routes in retired slots.
    retired_routes: u64,
}

impl Slots {
    /// The slot for new routes of the handle; `None` when there are too many.
    pub(crate) fn current(&mut self, handle: Handle, target: Option<Target>) -> Option<Slot> {
        match self.current.get(&handle) {
            Some(slot) if self.held[slot.0 as usize].target == target => return Some(*slot),
            Some(_) => self.retire(handle, Fate::Moved),
            None => {}
        }
        let held = Held { handle, target, routes: 0, fate: Fate::Current };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.held[slot.0 as usize] = held;
                slot
            }
            None if self.held.len() == MOST_SLOTS => return None,
            None => {
                self.held.push(held);
                Slot(self.held.len() as u32 - 1)
            }
        };
        self.current.insert(handle, slot);
        Some(slot)
    }

    /// The routes of the handle that were written so far have to be written again.
    pub(crate) fn retire(&mut self, handle: Handle, fate: Fate) {
        let Some(slot) = self.current.remove(&handle) else { return };
        let held = &mut self.held[slot.0 as usize];
        if held.routes == 0 {
            self.free.push(slot);
            return;
        }
        held.fate = fate;
        self.retired_routes += u64::from(held.routes);
    }

    pub(crate) fn handle(&self, slot: Slot) -> Handle {
        self.held[slot.0 as usize].handle
    }

    pub(crate) fn target(&self, slot: Slot) -> Option<Target> {
        self.held[slot.0 as usize].target
    }

    pub(crate) fn fate(&self, slot: Slot) -> Fate {
        self.held[slot.0 as usize].fate
    }

    /// Routes that have to be written again because of their slots.
    pub(crate) fn retired_routes(&self) -> u64 {
        self.retired_routes
    }

    /// The mirror has a route more in the slot.
    #[inline]
    pub(crate) fn enter(&mut self, slot: Slot) {
        self.held[slot.0 as usize].routes += 1;
    }

    /// The mirror has a route less in the slot.
    #[inline]
    pub(crate) fn leave(&mut self, slot: Slot) {
        let held = &mut self.held[slot.0 as usize];
        held.routes -= 1;
        if held.fate != Fate::Current {
            let is_empty = held.routes == 0;
            self.retired_routes -= 1;
            if is_empty {
                self.free.push(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Option<Target> = Some(Target::Group(1));

    #[test]
    fn a_handle_keeps_its_slot_as_long_as_its_target() {
        let mut slots = Slots::default();
        let one = slots.current(Handle(1), GROUP).expect("room");
        assert_eq!(slots.current(Handle(1), GROUP), Some(one));
        slots.enter(one);
        let other = slots.current(Handle(1), Some(Target::Blackhole)).expect("room");
        assert_ne!(one, other);
        assert_eq!((slots.fate(one), slots.fate(other)), (Fate::Moved, Fate::Current));
        assert_eq!((slots.handle(one), slots.retired_routes()), (Handle(1), 1));
    }

    #[test]
    fn a_retired_slot_is_used_again_when_its_last_route_has_left() {
        let mut slots = Slots::default();
        let one = slots.current(Handle(1), GROUP).expect("room");
        (0..2).for_each(|_| slots.enter(one));
        slots.retire(Handle(1), Fate::Lost);
        slots.leave(one);
        assert_ne!(slots.current(Handle(2), GROUP), Some(one));
        slots.leave(one);
        assert_eq!((slots.retired_routes(), slots.current(Handle(3), GROUP)), (0, Some(one)));
        slots.retire(Handle(3), Fate::Lost);
        assert_eq!(slots.current(Handle(4), GROUP), Some(one), "one without routes at once");
    }
}
