//! Living components, found by who they are, by name and by class. A router with hundreds of tables has thousands.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::table::{Owner, classes};
use crate::finder_api::v1::Instance;

/// The order of registrations.
type Turn = u64;

/// Who has registered, in that order.
#[derive(Debug, Default)]
pub(super) struct Living {
    entries: BTreeMap<Turn, (Owner, Instance)>,
    by_owner: HashMap<Owner, Turn>,
    /// No two have one name.
    by_name: HashMap<String, Turn>,
    by_class: HashMap<String, BTreeSet<Turn>>,
    next: Turn,
}

impl Living {
    /// The last of all from now on. The owner has no other, and the name is free.
    pub(super) fn add(&mut self, owner: Owner, instance: Instance) {
        let turn = self.next;
        self.next += 1;
        for class in classes(&instance) {
            self.by_class.entry(class.to_owned()).or_default().insert(turn);
        }
        self.by_name.insert(instance.name.clone(), turn);
        self.by_owner.insert(owner, turn);
        self.entries.insert(turn, (owner, instance));
    }

    /// It lives no more.
    pub(super) fn take(&mut self, owner: Owner) -> Option<Instance> {
        let turn = self.by_owner.remove(&owner)?;
        let (_, instance) = self.entries.remove(&turn)?;
        self.by_name.remove(&instance.name);
        for class in classes(&instance) {
            if let Some(turns) = self.by_class.get_mut(class) {
                turns.remove(&turn);
                if turns.is_empty() {
                    self.by_class.remove(class);
                }
            }
        }
        Some(instance)
    }

    /// What an owner has registered.
    pub(super) fn of(&self, owner: Owner) -> Option<&Instance> {
        self.by_owner.get(&owner).and_then(|turn| self.entries.get(turn)).map(|(_, instance)| instance)
    }

    /// Whether a class has an instance.
    pub(super) fn has_class(&self, class: &str) -> bool {
        self.by_class.contains_key(class)
    }

    /// Those of a class.
    pub(super) fn of_class(&self, class: &str) -> impl Iterator<Item = &(Owner, Instance)> {
        self.by_class.get(class).into_iter().flatten().filter_map(|turn| self.entries.get(turn))
    }

    /// The one of this name.
    pub(super) fn of_name(&self, name: &str) -> Option<&(Owner, Instance)> {
        self.by_name.get(name).and_then(|turn| self.entries.get(turn))
    }

    /// Everybody.
    pub(super) fn all(&self) -> impl Iterator<Item = &(Owner, Instance)> {
        self.entries.values()
    }

    /// Those who answer to a class or a name, "*" is everybody; with the classes that have none before them.
    pub(super) fn answering(&self, target: &str) -> Vec<(&(Owner, Instance), Vec<String>)> {
        let turns: BTreeSet<Turn> = match target {
            "*" => self.entries.keys().copied().collect(),
            _ => self
                .by_class
                .get(target)
                .into_iter()
                .flatten()
                .chain(self.by_name.get(target))
                .copied()
                .collect(),
        };
        let of = |turn: Turn| {
            let entry = self.entries.get(&turn)?;
            let mut known = BTreeSet::new();
            let is_first = |class: &&str| self.by_class.get(*class).and_then(BTreeSet::first) == Some(&turn);
            let first = classes(&entry.1).filter(is_first).filter(|class| known.insert(*class));
            Some((entry, first.map(str::to_owned).collect()))
        };
        turns.into_iter().filter_map(of).collect()
    }

    /// Those who answer to a class or a name, in no order, maybe twice; with their turn.
    pub(super) fn candidates(&self, target: &str) -> impl Iterator<Item = (Turn, &(Owner, Instance))> {
        let everybody = (target == "*").then(|| self.entries.keys()).into_iter().flatten();
        let named = self.by_class.get(target).into_iter().flatten().chain(self.by_name.get(target));
        everybody.chain(named).filter_map(|turn| Some((*turn, self.entries.get(turn)?)))
    }
}
