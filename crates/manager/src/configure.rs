//! What each process is told of the configuration.

use std::{collections::VecDeque, time::Duration};

use holdfast_api::{
    process::v1::{Configuration, Configured, ProcessClient},
    socket::v1::SocketClient,
};
use holdfast_config::{
    Config,
    schema::{ProcessSection, Vrf},
};
use holdfast_process::{ConfigureRequest, Processes, Reads, Refit, policies};
use holdfast_sockets::settings;
use holdfast_xrl::{XrlError, scoped};
use serde_json::Value;

use crate::{apart::apart, birth::MANAGER, manager::Manager, secrets};

/// A process that takes its configuration takes no longer than this.
pub(crate) const CONFIGURE_LIMIT: Duration = Duration::from_secs(20);

/// What a process is told, and of which table.
#[derive(Debug, PartialEq)]
pub struct Message {
    /// For the instance of this VRF; `None`: for the process itself.
    pub vrf: Option<String>,
    /// The request.
    pub request: ConfigureRequest,
}

/// What the process of this name is told, in this order: first, for itself, which VRFs there are, and then for each what
/// it is told for that.
pub(crate) fn messages(
    processes: &Processes,
    process: &str,
    config: &Config,
    refit: &Refit,
) -> Result<Vec<Message>, XrlError> {
    let mut messages = Vec::new();
    for table in std::iter::once(None).chain(config.vrfs.iter().map(Some)) {
        let vrf = table.map(|vrf| vrf.name.clone());
        let requests = requests(processes, process, config, table, refit)?.into_iter();
        messages.extend(requests.map(|request| Message { vrf: vrf.clone(), request }));
    }
    Ok(messages)
}

/// The same for one table: that of a VRF, or the default one.
fn requests(
    processes: &Processes,
    process: &str,
    config: &Config,
    table: Option<&Vrf>,
    refit: &Refit,
) -> Result<Vec<ConfigureRequest>, XrlError> {
    if process == MANAGER {
        let sockets = || ConfigureRequest {
            may_refuse: true,
            ..ConfigureRequest::new::<SocketClient>(&settings::configuration(config, table))
        };
        return Ok(if config.rib.enabled { Vec::new() } else { vec![sockets()] });
    }
    match processes.named(process).map(|process| process.reads) {
        Some(Reads::Config(reader)) => (reader.requests)(config, table, refit),
        Some(Reads::Section(_)) | None => {
            let section = config.sections.get(process).filter(|_| table.is_none());
            section.map(|section| own(config, section)).into_iter().collect()
        }
    }
}

/// A section for one process, as it is; a routing protocol filters routes, too.
fn own(config: &Config, section: &ProcessSection) -> Result<ConfigureRequest, XrlError> {
    let settings = Value::from(section.values.clone()).to_string().into_bytes();
    let policies = section.routing.map(|_| policies(config)).transpose()?.unwrap_or_default();
    Ok(ConfigureRequest::new::<ProcessClient>(&Configuration { settings, policies }))
}

/// Tells a process; the sessions that ended by it.
pub(crate) async fn tell(
    manager: &Manager,
    process: &str,
    message: Message,
) -> Result<Vec<String>, XrlError> {
    let ConfigureRequest { service, method, octets, secrets, refit, .. } = message.request;
    let class = if service.class.is_empty() { process } else { service.class };
    let vrf = message.vrf.as_deref();
    // A process begins the instance of a VRF when it is told of it: that may not be there yet.
    let channel = manager.resolver.channel(&scoped(class, vrf), service, vrf.is_some()).await?;
    if let Some(secrets) = secrets {
        secrets::give(&secrets, &channel, manager).await?;
    }
    // What others answer has no fields.
    let reply: Configured = channel.call_encoded(method, octets).await?;
    manager.refit.borrow_mut().retain(|name| !refit.contains(name));
    if vrf.is_none() {
        manager.supervisor.borrow_mut().leaves_out(process, reply.quarantined);
    }
    Ok(reply.ended)
}

/// Tells a process all of its configuration. A VRF that refuses its part, or does not answer, keeps no other from theirs.
///
/// # Errors
/// Of the process itself, which then has no VRFs to be told; or of the first VRF, when all have been told.
pub(crate) async fn tell_all(manager: &Manager, process: &str) -> Result<(), XrlError> {
    let mut all = VecDeque::from(all(manager, process).await?);
    let mut result = Ok(());
    while let Some(vrf) = all.front().map(|message| message.vrf.clone()) {
        let told = async {
            while let Some(message) = all.pop_front_if(|message| message.vrf == vrf) {
                tell(manager, process, message).await?;
            }
            Ok(())
        };
        let told = tokio::time::timeout(CONFIGURE_LIMIT, told).await;
        let told = told.unwrap_or_else(|_| Err(XrlError::timeout("no answer to its configuration")));
        match (told, &vrf) {
            (Ok(()), _) => {}
            (Err(error), None) => return Err(error),
            (Err(error), Some(name)) => {
                let error = XrlError::new(error.kind(), format!("VRF {name}: {}", error.message()));
                result = result.and(Err(error));
            }
        }
        all.retain(|message| message.vrf != vrf);
    }
    result
}

/// All that a process is told of the configuration that runs.
pub(crate) async fn all(manager: &Manager, process: &str) -> Result<Vec<Message>, XrlError> {
    let (processes, name, config) = (manager.processes.clone(), process.to_owned(), manager.config());
    let refit = manager.refit.borrow().clone();
    apart(move || messages(&processes, &name, &config, &refit)).await?
}
