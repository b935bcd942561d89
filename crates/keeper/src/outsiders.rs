//! Programs of somebody else: what the keeper lets the manager have executed, whatever that says.
//!
//! The manager reads descriptors, and may be anybody's one day. So the keeper asks what no descriptor can say: the name is no
//! process's of ours, the user is one of those for protocols, which the keeper itself knows since the router was started,
//! and the sandbox is as closed as it was then. What runs is then the affair of the router's binary in the child (`process::become_outsider`).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_api::keeper::v1::{Sandbox, SpawnRequest};
use holdfast_process::{OLD_TRANSPORT, OUTSIDERS, status};

use crate::service::Keeper;

/// Longest text of a descriptor that is handed on, in octets: less than an environment may hold.
const LONGEST: usize = 64 << 10;
/// Longest name of a protocol.
const LONGEST_NAME: usize = 15;
/// Programs of somebody else that live at a time, under whatever names.
const MOST: usize = 64;

/// A program that may be started.
#[derive(Debug)]
pub(crate) struct Outsider {
    pub(crate) descriptor: String,
    pub(crate) sandbox: Sandbox,
    /// How long it may be silent, if not as long as all others.
    pub(crate) hang_limit: Option<Duration>,
}

impl Keeper {
    /// The program that a request is about.
    ///
    /// # Errors
    /// Why it is not started.
    pub(crate) fn outsider(&self, request: SpawnRequest) -> Result<Outsider> {
        let SpawnRequest { name, sandbox, descriptor, hang_limit_milliseconds, user_number } = request;
        let (sandbox, descriptor) = (sandbox.unwrap_or_default(), descriptor.unwrap_or_default());
        let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        ensure!(
            !name.is_empty() && name.len() <= LONGEST_NAME && is_plain,
            "{name:?} is no name for a protocol"
        );
        ensure!(!self.is_ours(&name), "{name:?} is a process of the router");
        let user = self.user(user_number)?;
        ensure!(
            descriptor.len() <= LONGEST && !descriptor.contains('\0'),
            "the descriptor cannot be handed on"
        );
        let living =
            self.children.borrow().living.values().filter(|child| !self.is_ours(&child.name)).count();
        ensure!(living < MOST, "{MOST} programs of others run already");
        // Neither a manager that is not one any more nor a change under way opens it.
        let open = self.options.sandbox.open && sandbox.open;
        Ok(Outsider {
            descriptor,
            sandbox: Sandbox { open, user, directories: Vec::new(), ..sandbox },
            hang_limit: hang_limit_milliseconds.map(Duration::from_millis),
        })
    }

    /// One of the users for protocols, as the router was started with: not one that a process of ours has.
    fn user(&self, number: u32) -> Result<u32> {
        let first = self.options.first_user;
        ensure!(first != 0, "the router was started without users for protocols");
        let user = OUTSIDERS.start.checked_add(number).filter(|number| OUTSIDERS.contains(number));
        let user = user.and_then(|number| number.checked_add(first));
        let user = user.with_context(|| format!("there is no user for protocols of number {number}"))?;
        let children = self.children.borrow();
        let mut ours = children.living.iter().filter(|(_, child)| self.is_ours(&child.name));
        ensure!(
            !ours.any(|(pid, _)| status(*pid).is_some_and(|status| status.user == user)),
            "user {user} is that of a process of the router"
        );
        Ok(user)
    }

    /// Whether a name is one of the router's own processes.
    pub(crate) fn is_ours(&self, name: &str) -> bool {
        self.processes.named(name).is_some() || ["keeper", "manager", OLD_TRANSPORT].contains(&name)
    }
}
