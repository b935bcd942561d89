//! What a process reads of the configuration of its router, and the requests that tell it.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use holdfast_api::keeper::v1::OpenFileRequest;
use holdfast_config::{Config, OwnSection, schema::Vrf};
use holdfast_xrl::{Configure, ServiceInfo, XrlError};
use prost::{Message, bytes::Bytes};

/// What a process reads of the configuration.
#[derive(Copy, Clone, Debug)]
pub enum Reads {
    /// A section for itself: the process runs if the section is there, and is told the section as it is
    /// ([`Configured`](crate::Configured)).
    Section(OwnSection),
    /// Parts of the whole.
    Config(ConfigReader),
}

/// How a process reads its parts of the configuration. All functions go by their arguments alone.
#[derive(Copy, Clone, Debug)]
pub struct ConfigReader {
    /// Whether the configuration needs the process.
    pub is_wanted: fn(&Config) -> bool,
    /// Whether another configuration, the second, needs another process: what a process takes at its birth only differs.
    pub is_replaced: fn(&Config, &Config) -> bool,
    /// The class of a process that says when this one may have its configuration (`ready.v1`): before, it would not know what it
    /// goes on with.
    pub waits_for: fn(&Config) -> Option<&'static str>,
    /// It tells other routers of the part of the configuration that these have, too, and hears of theirs (`shared.v1`): before
    /// another one takes effect, it is asked.
    pub shares: bool,
    /// Directories that it may write in, if its rights say that it writes.
    pub directories: fn(&Config) -> Vec<String>,
    /// What it is told, in this order: for itself, which has the default table, or for the instance of a VRF.
    pub requests: MakeRequests,
}

/// The requests of a configuration, for a table (`None`: the default one), with the peers that are to be refitted.
///
/// # Errors
/// A part cannot be written.
pub type MakeRequests = fn(&Config, Option<&Vrf>, &Refit) -> Result<Vec<ConfigureRequest>, XrlError>;

impl ConfigReader {
    /// Of a process that any configuration needs, and that is told nothing.
    pub const NOTHING: Self = Self {
        is_wanted: |_| true,
        is_replaced: |_, _| false,
        waits_for: |_| None,
        shares: false,
        directories: |_| Vec::new(),
        requests: |_, _, _| Ok(Vec::new()),
    };
}

/// Names of peers and ranges whose connections are to be given other options.
pub type Refit = BTreeSet<String>;

/// A request of `Configure`: what a process is told of a configuration, for one table. If those of two configurations are
/// equal, nothing has to be told.
#[derive(Clone)]
pub struct ConfigureRequest {
    /// Whose `Configure` it is.
    pub service: &'static ServiceInfo,
    /// Number of the method.
    pub method: u32,
    /// The message, encoded.
    pub octets: Bytes,
    /// What the process opens by it has to be there before sessions that need it: it is told before all others, and before
    /// processes begin and end.
    pub opens: bool,
    /// It says which VRFs there are.
    pub names_vrfs: bool,
    /// What the process is given before, if it has secrets.
    pub secrets: Option<Secrets>,
    /// Files that the process is given before, if it needs some.
    pub files: Option<FilesToGive>,
    /// The peers of the request that are to be refitted.
    pub refit: Vec<String>,
}

impl ConfigureRequest {
    /// The request to this service.
    pub fn new<C: Configure>(configuration: &C::Configuration) -> Self {
        Self {
            service: C::SERVICE,
            method: C::METHOD,
            octets: configuration.encode_to_vec().into(),
            opens: false,
            names_vrfs: false,
            secrets: None,
            files: None,
            refit: Vec::new(),
        }
    }

    /// The message, if it is one to this service.
    ///
    /// # Errors
    /// The octets are no such message.
    pub fn read<C: Configure>(&self) -> Option<Result<C::Configuration, prost::DecodeError>>
    where
        C::Configuration: Default,
    {
        (self.service.id == C::SERVICE.id).then(|| C::Configuration::decode(self.octets.clone()))
    }
}

impl PartialEq for ConfigureRequest {
    fn eq(&self, other: &Self) -> bool {
        let Self { service, method, octets, opens, names_vrfs, secrets, files, refit } = self;
        (service.id, method, octets) == (other.service.id, &other.method, &other.octets)
            && (opens, names_vrfs) == (&other.opens, &other.names_vrfs)
            && (secrets, files, refit) == (&other.secrets, &other.files, &other.refit)
    }
}

impl fmt::Debug for ConfigureRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The message may hold keys.
        f.debug_struct("ConfigureRequest").field("service", &self.service.name).finish_non_exhaustive()
    }
}

/// Files that the keeper opens, and the manager hands to the process, whose rights open none.
#[derive(Clone, PartialEq, Debug)]
pub struct FilesToGive {
    /// Number of the method that takes the descriptors. Its request has no fields.
    pub method: u32,
    /// The files, in the order of the descriptors; as many as a call may carry at most.
    pub files: Vec<OpenFileRequest>,
}

/// What only this process may know: it travels in sealed memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets {
    /// Number of the method that takes the memory. Its request has no fields.
    pub method: u32,
    /// What is in the memory, a message of the service.
    pub octets: Arc<[u8]>,
    /// For `transport`: the file to which the secrets of sessions are written, as the configuration names it.
    pub key_log: Option<String>,
    /// For `transport`: whether keys of QUIC have to outlive the process.
    pub seeds: bool,
}

impl Secrets {
    /// This message, for this method.
    pub fn new(method: u32, message: &impl Message) -> Self {
        Self { method, octets: message.encode_to_vec().into(), key_log: None, seeds: false }
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

/// The policies of a configuration as they travel, as JSON.
///
/// # Errors
/// Of serde.
pub fn policies(config: &Config) -> Result<String, XrlError> {
    serde_json::to_string(&config.policy)
        .map_err(|error| XrlError::internal(format!("writing the policies: {error}")))
}

/// A time as it travels, in whole seconds.
pub fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use holdfast_api::{
        fea::v1::FeaClient,
        rib::v1::{Configuration, RibClient},
    };

    use super::*;

    #[test]
    fn a_request_is_read_by_its_own_service_only() {
        let configuration = Configuration { vrfs: vec!["blue".into()], ..Configuration::default() };
        let request = ConfigureRequest::new::<RibClient>(&configuration);
        assert_eq!(request.read::<RibClient>(), Some(Ok(configuration)));
        assert!(request.read::<FeaClient>().is_none());
    }

    #[test]
    fn secrets_and_requests_are_not_shown() {
        let secrets = Secrets::new(1, &Configuration { stale_seconds: 7, ..Configuration::default() });
        let request = ConfigureRequest {
            secrets: Some(secrets),
            ..ConfigureRequest::new::<RibClient>(&Configuration::default())
        };
        assert_eq!(format!("{request:?}"), "ConfigureRequest { service: \"rib.v1.Rib\", .. }");
        assert_eq!(format!("{:?}", request.secrets), "Some(Secrets(..))");
    }

    #[test]
    fn other_secrets_or_peers_to_refit_are_something_else_to_say() {
        let request = ConfigureRequest::new::<RibClient>(&Configuration::default());
        assert_eq!(request, request.clone());
        for other in [
            ConfigureRequest { secrets: Some(Secrets::new(1, &())), ..request.clone() },
            ConfigureRequest { refit: vec!["a".into()], ..request.clone() },
            ConfigureRequest::new::<RibClient>(&Configuration {
                stale_seconds: 1,
                ..Configuration::default()
            }),
        ] {
            assert_ne!(request, other);
        }
    }
}
