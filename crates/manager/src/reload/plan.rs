//! What has to be done for another configuration, as far as the two of them tell.

use std::sync::Arc;

use holdfast_config::Config;
use holdfast_process::{Processes, Refit};
use holdfast_xrl::XrlError;

use super::{
    differences::changes,
    messages::{Messages, by_turn},
    sessions::with_other_sockets,
};
use crate::{
    apart::apart,
    birth::{MANAGER, is_replaced},
    manager::Manager,
    outsiders,
};

/// What has to be done.
pub struct Plan {
    /// What is told first, before processes begin and end.
    pub first: Messages,
    /// What is told then.
    pub then: Messages,
    /// What is different, in lines for people.
    pub changes: Vec<String>,
    /// Processes that have to be others, in the order in which they are replaced; the manager itself is the last.
    pub replaced: Vec<&'static str>,
    /// Peers and ranges whose connections are to be given other options.
    pub refit: Refit,
}

impl Plan {
    /// For these configurations of a router that is made of these processes. `refit`: peers of which `bgp` has not heard yet
    /// from earlier changes.
    ///
    /// # Errors
    /// A part of the configuration cannot be written.
    pub fn new(processes: &Processes, old: &Config, new: &Config, refit: &Refit) -> Result<Self, XrlError> {
        let refit: Refit = refit.iter().cloned().chain(with_other_sockets(old, new)).collect();
        let (first, then) = by_turn(processes, old, new, &refit)?;
        let names = processes.as_replaced().map(|process| process.name).chain(outsiders::names(new));
        let replaced = names.chain([MANAGER]).filter(|name| is_replaced(processes, name, old, new)).collect();
        Ok(Self { first, then, changes: changes(old, new), replaced, refit })
    }
}

/// The plan for the router, while others are answered.
pub(super) async fn plan(manager: &Manager, old: &Arc<Config>, new: &Arc<Config>) -> Result<Plan, XrlError> {
    let (processes, refit) = (manager.processes.clone(), manager.refit.borrow().clone());
    let (old, new) = (Arc::clone(old), Arc::clone(new));
    apart(move || Plan::new(&processes, &old, &new, &refit)).await?
}
