//! What a living component can do, learned from itself.

use prost_reflect::{DescriptorPool, MessageDescriptor, MethodDescriptor};

use super::xrl::Xrl;
use crate::finder_api::v1::{DescribeRequest, FinderClient, Instance, Method, Service};
use crate::{Channel, Client, Resolver, XrlError};

/// Services of one component with the types of their messages.
pub(crate) struct Interfaces {
    pub(crate) instance: Instance,
    pub(crate) pool: DescriptorPool,
}

/// A method found by its name.
pub(crate) struct Found {
    /// Full name of its service.
    pub(crate) service: String,
    pub(crate) id: u32,
    pub(crate) streaming: bool,
    descriptor: MethodDescriptor,
}

impl Found {
    pub(crate) fn input(&self) -> MessageDescriptor {
        self.descriptor.input()
    }

    pub(crate) fn output(&self) -> MessageDescriptor {
        self.descriptor.output()
    }
}

/// The Finder as an instance: it does not register with itself.
pub(crate) fn finder_instance() -> Instance {
    let service = crate::node::describe_service(FinderClient::SERVICE);
    Instance { name: FINDER.to_owned(), class: FINDER.to_owned(), pid: 0, services: vec![service] }
}

const FINDER: &str = "finder";

/// Package of a service by its full name.
pub(crate) fn package(service: &str) -> &str {
    service.rsplit_once('.').map_or("", |(package, _)| package)
}

impl Interfaces {
    /// Asks the Finder, which asks the target.
    pub(crate) async fn of(resolver: &Resolver, target: &str) -> Result<Self, XrlError> {
        let (instance, sets) = if target == FINDER {
            (finder_instance(), vec![FinderClient::SERVICE.descriptor_set.to_vec()])
        } else {
            let reply = resolver.finder()?.describe(DescribeRequest { target: target.to_owned() }).await?;
            (reply.instance.unwrap_or_default(), reply.descriptor_sets)
        };
        let mut pool = DescriptorPool::new();
        for set in sets {
            let added = pool.decode_file_descriptor_set(set.as_slice());
            added
                .map_err(|error| XrlError::internal(format!("{target} describes itself wrongly: {error}")))?;
        }
        Ok(Self { instance, pool })
    }

    /// The services of an interface, by package or full name; all for "".
    pub(crate) fn services<'a>(&'a self, interface: &'a str) -> impl Iterator<Item = &'a Service> {
        let matches =
            move |name: &str| interface.is_empty() || name == interface || package(name) == interface;
        self.instance.services.iter().filter(move |service| matches(&service.name))
    }

    /// Finds the method of a call.
    pub(crate) fn method(&self, xrl: &Xrl) -> Result<Found, XrlError> {
        let Xrl { interface, method: name, .. } = xrl;
        for service in self.services(interface) {
            if let Some(method) = service.methods.iter().find(|method| method.name == *name) {
                return self.found(service, method);
            }
        }
        let known: Vec<_> =
            self.services(interface).flat_map(|service| &service.methods).map(|m| m.name.as_str()).collect();
        Err(XrlError::not_found(match known.is_empty() {
            true => {
                let known: Vec<_> = self.services("").map(|service| package(&service.name)).collect();
                format!("{} has no interface {interface} (it has: {})", self.instance.name, known.join(", "))
            }
            false => format!("{interface} has no method {name} (it has: {})", known.join(", ")),
        }))
    }

    fn found(&self, service: &Service, method: &Method) -> Result<Found, XrlError> {
        let descriptor = self.pool.get_service_by_name(&service.name);
        let descriptor = descriptor.and_then(|s| s.methods().find(|m| m.name() == method.name));
        let descriptor = descriptor.ok_or_else(|| {
            XrlError::internal(format!("{} does not describe {}", service.name, method.name))
        })?;
        Ok(Found { service: service.name.clone(), id: method.id, streaming: method.streaming, descriptor })
    }

    /// A channel on which this method can be called, and nothing else (but the Finder is called on the way to it).
    pub(crate) async fn open(&self, resolver: &Resolver, method: &Found) -> Result<Channel, XrlError> {
        if self.instance.name == FINDER {
            return Ok(resolver.finder()?.channel().clone());
        }
        resolver.open(&self.instance.name, &method.service, &[method.id], false).await
    }

    /// Resolved forms of the methods of an interface (or one of them) that this caller may call.
    pub(crate) async fn resolve(
        &self,
        resolver: &Resolver,
        interface: &str,
        method: &str,
    ) -> Result<Vec<String>, XrlError> {
        let mut lines = Vec::new();
        for service in self.services(interface) {
            let wanted = service.methods.iter().filter(|known| !method.is_empty() && known.name == method);
            let wanted: Vec<u32> = wanted.map(|method| method.id).collect();
            if !method.is_empty() && wanted.is_empty() {
                continue;
            }
            let covered = self.covered(resolver, &service.name, wanted).await?;
            let open = service.methods.iter().filter(|method| covered.contains(&method.id));
            lines.extend(open.map(|method| {
                let package = package(&service.name);
                format!("unix://{}/{package}/{} ({:#010x})", self.instance.name, method.name, method.id)
            }));
        }
        if lines.is_empty() {
            let text = format!("{} has no {interface}/{method}", self.instance.name);
            return Err(XrlError::not_found(text.trim_end_matches('/').to_owned()));
        }
        Ok(lines)
    }

    /// Numbers of the methods that a key for this caller covers.
    async fn covered(
        &self,
        resolver: &Resolver,
        service: &str,
        methods: Vec<u32>,
    ) -> Result<Vec<u32>, XrlError> {
        if self.instance.name == FINDER {
            let all = FinderClient::SERVICE.methods.iter().map(|method| method.id);
            return Ok(all.filter(|id| methods.is_empty() || methods.contains(id)).collect());
        }
        let request = crate::finder_api::v1::ResolveRequest {
            target: self.instance.name.clone(),
            service: service.to_owned(),
            methods,
            wait: false,
        };
        let (reply, _) = resolver.finder()?.resolve(request).await?;
        Ok(reply.methods)
    }
}
