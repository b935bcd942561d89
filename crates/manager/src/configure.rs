//! What each process is told of the configuration.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use holdfast_api::{
    process::v1::{Configuration, Configured, ProcessClient},
    socket::v1::{self as sockets, PortGrant, SocketClient},
};
use holdfast_config::{
    Config,
    schema::{ProcessSection, Vrf},
    secrets::{apart as apart_from, has_secrets},
};
use holdfast_process::{ConfigureRequest, FilesToGive, Process, Processes, Reads, Refit, Secrets, policies};
use holdfast_sockets::settings;
use holdfast_xrl::{Channel, Client, XrlError, scoped};
use prost::Message as _;
use serde_json::Value;

use crate::{
    apart::apart,
    birth::{MANAGER, is_wanted},
    manager::Manager,
    secrets,
};

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
        let requests = requests.map(|request| with_ports(request, processes, config));
        messages.extend(requests.map(|request| Message { vrf: vrf.clone(), request }));
    }
    Ok(messages)
}

/// Adds, to what an opener of sockets is told, at which ports processes receive: only their descriptors say it.
fn with_ports(mut request: ConfigureRequest, processes: &Processes, config: &Config) -> ConfigureRequest {
    if request.service.id == SocketClient::SERVICE.id {
        // Two messages behind each other are one of both.
        let ports = sockets::Configuration { ports: ports(processes, config), ..Default::default() };
        request.octets = [&*request.octets, &ports.encode_to_vec()].concat().into();
    }
    request
}

/// The ports of all processes that a configuration wants.
fn ports(processes: &Processes, config: &Config) -> Vec<PortGrant> {
    let wanted = processes.as_configured().filter(|process| is_wanted(processes, process.name, config));
    let of = |process: &'static Process| {
        let ports = process.rights.network.ports().iter();
        ports.map(|port| PortGrant { class: process.name.to_owned(), port: (*port).into() })
    };
    wanted.flat_map(of).collect()
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
            opens: true,
            ..ConfigureRequest::new::<SocketClient>(&settings::configuration(config, table))
        };
        return Ok(if config.rib.enabled { Vec::new() } else { vec![sockets()] });
    }
    match processes.named(process).map(|process| process.reads) {
        Some(Reads::Config(reader)) => (reader.requests)(config, table, refit),
        Some(Reads::Section(_)) | None => {
            let section = config.sections.get(process).filter(|_| table.is_none());
            section.map(|section| own(config, process, section)).into_iter().collect()
        }
    }
}

/// A section for one process, as it is; a routing protocol filters routes, too.
fn own(config: &Config, process: &str, section: &ProcessSection) -> Result<ConfigureRequest, XrlError> {
    let described = config.described().find(|(name, _)| *name == process).map(|(_, found)| found.section);
    // A process of ours has its secrets where its settings are: it is told them over a channel that nobody else reads.
    let (values, secrets) = match described.filter(|table| has_secrets(table)) {
        Some(table) => {
            let (values, secrets) = apart_from(table, &section.values);
            let octets = Value::from(secrets).to_string().into_bytes().into();
            (values, Some(Secrets { method: ProcessClient::KEEP, octets, key_log: None, seeds: false }))
        }
        None => (section.values.clone(), None),
    };
    let settings = Value::from(values).to_string().into_bytes();
    let policies = section.routing.map(|_| policies(config)).transpose()?.unwrap_or_default();
    let request = ConfigureRequest::new::<ProcessClient>(&Configuration { settings, policies });
    Ok(ConfigureRequest { secrets, ..request })
}

/// Tells a process; the sessions that ended by it. The caller has the turn of that process.
pub(crate) async fn tell(
    manager: &Manager,
    process: &str,
    message: Message,
) -> Result<Vec<String>, XrlError> {
    let ConfigureRequest { service, method, octets, secrets, files, refit, .. } = message.request;
    let class = if service.class.is_empty() { process } else { service.class };
    let vrf = message.vrf.as_deref();
    // A process begins the instance of a VRF when it is told of it: that may not be there yet.
    let channel = manager.resolver.channel(&scoped(class, vrf), service, vrf.is_some()).await?;
    if let Some(secrets) = secrets {
        secrets::give(&secrets, &channel, manager).await?;
    }
    if let Some(files) = files {
        give(files, &channel, manager).await?;
    }
    // What others answer has no fields.
    let reply: Configured = channel.call_encoded(method, octets).await?;
    manager.refit.borrow_mut().retain(|name| !refit.contains(name));
    if vrf.is_none() {
        manager.supervisor.borrow_mut().leaves_out(process, reply.quarantined);
    }
    Ok(reply.ended)
}

/// Gives a process the files that it needs.
async fn give(files: FilesToGive, channel: &Channel, manager: &Manager) -> Result<(), XrlError> {
    let mut descriptors = Vec::new();
    for file in files.files {
        let (_, opened) = manager.keeper.open_file(file).await?;
        descriptors.extend(opened);
    }
    channel.call::<(), ()>(files.method, &(), descriptors).await
}

/// Tells a process all of its configuration. A VRF that refuses its part, or does not answer, keeps no other from theirs.
///
/// A process is found by its name: `is_it` says, before each message, whether it is still the one that may have it, and not the
/// next one of that name, which may have to wait. A commit while the messages are sent makes the rest of them stale: the process
/// is then told all of the new configuration.
///
/// # Errors
/// Of the process itself, which then has no VRFs to be told; or of the first VRF, when all have been told.
pub(crate) async fn tell_all(
    manager: &Manager,
    process: &str,
    is_it: impl Fn() -> bool,
) -> Result<(), XrlError> {
    loop {
        let config = manager.config();
        let told = tell_all_of(manager, process, &config, &is_it).await;
        if Arc::ptr_eq(&config, &manager.config.borrow()) || !is_it() {
            return told;
        }
    }
}

/// Tells a process all of `config`, as long as that is the configuration.
async fn tell_all_of(
    manager: &Manager,
    process: &str,
    config: &Arc<Config>,
    is_it: impl Fn() -> bool,
) -> Result<(), XrlError> {
    let mut all = VecDeque::from(all(manager, process).await?);
    let mut result = Ok(());
    while let Some(vrf) = all.front().map(|message| message.vrf.clone()) {
        let told = async {
            while let Some(message) = all.pop_front_if(|message| message.vrf == vrf) {
                let _turn = manager.turns.of(process).await;
                if !is_it() {
                    return Err(XrlError::unavailable("it has ended"));
                }
                if !Arc::ptr_eq(config, &manager.config.borrow()) {
                    return Err(XrlError::unavailable("another configuration has been committed"));
                }
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

#[cfg(test)]
mod tests {
    use holdfast_config::{OwnSection, ProcessKeys, Schema, describe::Table};
    use holdfast_process::{ConfigReader, End, Network, Rights, User};

    use super::*;

    const fn process(name: &'static str, user: u32, rights: Rights, reads: Reads) -> Process {
        Process {
            name,
            does: "does something",
            user: User::Own(user),
            rights,
            services: &[],
            after: &[],
            feeds: &[],
            end: End::Killed,
            hang_limit: None,
            reads,
            reads_kept_of: &[],
            routing: None,
            shows: &[],
            clears: &[],
        }
    }

    const OPENS_SOCKETS: ConfigReader = ConfigReader {
        requests: |_, _, _| {
            let said = sockets::Configuration { heard: vec!["::/0".into()], ..Default::default() };
            Ok(vec![ConfigureRequest::new::<SocketClient>(&said)])
        },
        ..ConfigReader::NOTHING
    };
    const SECTION: OwnSection =
        OwnSection { key: "bfd", table: &Table { doc: "Nothing.", keys: &[] }, check: None, implied: None };

    /// What `fea` is told of ports, for the default table and for a VRF, of a configuration with this section.
    fn told(section: &str) -> Vec<Vec<u32>> {
        static FEA: Process = process("fea", 0, Rights::worker(Network::None), Reads::Config(OPENS_SOCKETS));
        static BFD: Process =
            process("bfd", 1, Rights::worker(Network::Ports(&[3784, 4784])), Reads::Section(SECTION));
        let processes = Processes::new(&[&FEA, &BFD]).expect("an order");
        let keys = ProcessKeys { name: "bfd", does: "looks", section: Some(SECTION), routing: None };
        let text = format!(
            "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[[vrf]]\nname = \"blue\"\nnetns = \"blue\"\n{section}"
        );
        let config = holdfast_config::parse(&text, "test", Schema::new([keys])).expect("right");
        let messages = messages(&processes, "fea", &config, &Refit::new()).expect("messages");
        let configurations =
            messages.iter().map(|message| message.request.read::<SocketClient>().expect("one of sockets"));
        let ports = configurations.map(|configuration| {
            let configuration = configuration.expect("readable");
            assert_eq!(configuration.heard, ["::/0"], "what else is said stays");
            assert!(configuration.ports.iter().all(|grant| grant.class == "bfd"));
            configuration.ports.iter().map(|grant| grant.port).collect()
        });
        ports.collect()
    }

    #[test]
    fn the_opener_of_each_table_is_told_the_ports_of_processes_that_are_wanted() {
        assert_eq!(told("[bfd]\n"), [[3784, 4784], [3784, 4784]]);
        assert_eq!(told(""), [[0; 0], [0; 0]]);
    }
}
