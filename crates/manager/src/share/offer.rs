//! Whether a configuration may take effect.

use std::{sync::Arc, time::Duration};

use holdfast_api::shared::v1::{Configuration, OfferRequest, SharedClient};
use holdfast_process::Reads;
use holdfast_xrl::{ErrorKind, XrlError};
use tokio::time::timeout;

use super::text::{Own, internal, message, number};
use crate::{apart::apart, birth::is_wanted, manager::Manager, reload::Candidate};

/// A process that shares has so long to find out whether others can have a configuration. It has limits of its own, which are
/// shorter.
const OFFER_LIMIT: Duration = Duration::from_secs(12);

impl Manager {
    /// The processes that carry what is shared.
    pub(crate) fn sharing_processes(&self) -> impl Iterator<Item = &'static str> {
        let shares = |reads| matches!(reads, Reads::Config(reader) if reader.shares);
        self.processes
            .as_configured()
            .filter(move |process| shares(process.reads))
            .map(|process| process.name)
    }

    /// What is told of the configuration that runs.
    pub(super) async fn own(&self) -> Result<Configuration, XrlError> {
        let (text, config) = (Arc::clone(&self.text.borrow()), self.config());
        if let Some(own) = &*self.sharing.own.borrow()
            && Arc::ptr_eq(&own.text, &text)
            && Arc::ptr_eq(&own.config, &config)
        {
            return Ok(own.message.clone());
        }
        let (copy, read) = (Arc::clone(&text), Arc::clone(&config));
        let serial = self.sharing.next_serial();
        let made = apart(move || message(&copy.read().map_err(internal)?, &read, serial));
        let message = made.await??;
        self.sharing.own.replace(Some(Own { text, config, message: message.clone() }));
        Ok(message)
    }
}

/// Asks all who share whether a candidate may take effect; what others will not have of it, in words of the operator.
///
/// # Errors
/// `FailedPrecondition`: it may not.
pub(crate) async fn offer(manager: &Manager, candidate: &Candidate) -> Result<Vec<String>, XrlError> {
    let names = manager.sharing_processes().filter(|name| manager.pid(name).is_some());
    let wants = |name: &&'static str| is_wanted(&manager.processes, name, &candidate.config);
    let names: Vec<_> = names.filter(wants).collect();
    let mut notes = Vec::new();
    if names.is_empty() {
        return Ok(notes);
    }
    let (text, config, runs) = (Arc::clone(&candidate.text), Arc::clone(&candidate.config), manager.config());
    let serial = manager.sharing.next_serial();
    // By one key: another one makes another number of the same.
    let made = apart(move || {
        let text = text.read().map_err(internal)?;
        Ok::<_, XrlError>((number(&text, &runs)?, message(&text, &config, serial)?))
    });
    let (number, offered) = made.await??;
    if number == manager.own().await?.number {
        return Ok(notes);
    }
    for name in names {
        let asked = async {
            let shared: SharedClient = manager.resolver.wait_for(name).await?;
            shared.offer(OfferRequest { configuration: Some(offered.clone()), running: false }).await
        };
        match timeout(OFFER_LIMIT, asked).await {
            Ok(Ok(reply)) => notes.extend(reply.notes),
            Ok(Err(error)) if error.kind() == ErrorKind::FailedPrecondition => {
                manager.sharing.may_differ();
                return Err(error);
            }
            Ok(Err(error)) => notes.push(format!("no standby has it: {name}: {}", error.message())),
            Err(_) => notes.push(format!("no standby has it: {name} does not answer")),
        }
    }
    Ok(notes)
}
