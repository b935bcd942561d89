//! With whom a speaker works.

use std::rc::Rc;

use holdfast_bgp_pipeline::{Rewriter, Slot, Stage};
use holdfast_process::{Boot, Resolver, profile::Profile};
use holdfast_xrl::{Client, XrlError, scoped};
use tracing::Span;

use crate::{custody::FdStore, fairness::Fairness, quarantine::Quarantine, validation::Validation};

/// Makes the stages that are plugged into a pipeline between ImportPolicy and Decision, in this order. Called when the
/// process gets its first configuration, and for each VRF when that gets its first.
pub type MakeStages = fn() -> Vec<Box<dyn Stage>>;

/// The same for stages that rewrite, each with its slot; those of a slot in this order.
pub type MakeRewriters = fn() -> Vec<(Slot, Box<dyn Rewriter>)>;

/// What a program adds to the pipelines of its router.
#[derive(Copy, Clone)]
pub struct Plugs {
    /// Stages that hold back.
    pub stages: MakeStages,
    /// Stages that rewrite.
    pub rewriters: MakeRewriters,
}

impl Default for Plugs {
    fn default() -> Self {
        Self { stages: Vec::new, rewriters: Vec::new }
    }
}

/// With whom a speaker works.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) resolver: Resolver,
    vrf: Option<Rc<str>>,
    pub(crate) custody: FdStore,
    pub(crate) profile: Profile,
    /// Names the VRF in each line of the log.
    pub(crate) span: Span,
    pub(crate) turns: Rc<Fairness>,
    /// That of all tables.
    pub(crate) validation: Rc<Validation>,
    /// That of all tables.
    pub(crate) quarantine: Rc<Quarantine>,
}

impl Context {
    pub(crate) fn new(
        boot: &Boot,
        turns: &Rc<Fairness>,
        validation: &Rc<Validation>,
        quarantine: &Rc<Quarantine>,
    ) -> Self {
        Self {
            resolver: boot.resolver.clone(),
            vrf: boot.vrf.clone(),
            custody: FdStore::new(boot.keeper.clone(), boot.vrf.clone()),
            profile: boot.profile.clone(),
            span: boot.span(),
            turns: Rc::clone(turns),
            validation: Rc::clone(validation),
            quarantine: Rc::clone(quarantine),
        }
    }

    /// The VRF; `None`: the default table.
    pub(crate) fn vrf(&self) -> Option<&str> {
        self.vrf.as_deref()
    }

    /// The one of this class that has to do with the same table.
    pub(crate) async fn client<C: Client>(&self, class: &str) -> Result<C, XrlError> {
        match &self.vrf {
            None => self.resolver.client(class).await,
            vrf => self.resolver.client(&scoped(class, vrf.as_deref())).await,
        }
    }

    /// The same, as soon as it is there.
    pub(crate) async fn wait_for<C: Client>(&self, class: &str) -> Result<C, XrlError> {
        self.resolver.wait_for(&scoped(class, self.vrf.as_deref())).await
    }
}
