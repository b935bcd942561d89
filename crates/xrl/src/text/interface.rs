//! What a living component can do, learned from itself.

use prost_reflect::{DescriptorPool, MessageDescriptor, MethodDescriptor};

use super::xrl::Xrl;
use crate::finder_api::v1::{
    DescribeRequest, FamiliesRequest, Family, FinderClient, Instance, Method, Service,
};
use crate::{Channel, Client, ErrorKind, Resolver, XrlError};

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
    Instance {
        name: FINDER.to_owned(),
        class: FINDER.to_owned(),
        pid: 0,
        services: vec![service],
        sole: true,
    }
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

    /// Resolved forms of the methods of an interface (or one of them) that this caller may call: one for each family,
    /// and that of the signals.
    pub(crate) async fn resolve(
        &self,
        resolver: &Resolver,
        interface: &str,
        method: &str,
    ) -> Result<Vec<String>, XrlError> {
        let offered = families(resolver).await?;
        let mut lines = Vec::new();
        for service in self.services(interface) {
            let methods: Vec<_> =
                service.methods.iter().filter(|known| method.is_empty() || known.name == method).collect();
            if methods.is_empty() {
                continue;
            }
            let wanted = if method.is_empty() { Vec::new() } else { methods.iter().map(|m| m.id).collect() };
            let covered = self.covered(resolver, &service.name, wanted).await?;
            for method in methods.into_iter().filter(|method| covered.contains(&method.id)) {
                let carried = offered.iter().filter(|family| method.families.contains(&family.name));
                lines.extend(carried.map(|family| self.resolved(family, &service.name, method)));
            }
        }
        if lines.is_empty() {
            let text = format!("{} has no {interface}/{method}", self.instance.name);
            return Err(XrlError::not_found(text.trim_end_matches('/').to_owned()));
        }
        if self.instance.pid != 0 {
            lines.push(format!("signal://{}/TERM (process {})", self.instance.name, self.instance.pid));
        }
        Ok(lines)
    }

    fn resolved(&self, family: &Family, service: &str, method: &Method) -> String {
        let Family { name, address } = family;
        let slash = if address.is_empty() { "" } else { "/" };
        let (instance, package, Method { name: method, id, .. }) =
            (&self.instance.name, package(service), method);
        format!("{name}://{address}{slash}{instance}/{package}/{method} ({id:#010x})")
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

/// The families over which the Finder connects. One of an older build connects over sockets.
async fn families(resolver: &Resolver) -> Result<Vec<Family>, XrlError> {
    match resolver.finder()?.families(FamiliesRequest {}).await {
        Ok(reply) => Ok(reply.families),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(vec![Family { name: crate::Family::Unix.name().to_owned(), address: String::new() }])
        }
        Err(error) => Err(error),
    }
}
