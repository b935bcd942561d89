//! Who is registered, and who may call what. Pure: channels are only numbers here.

use crate::finder_api::v1::{Instance, Method, Service};
use crate::{PeerIdentity, XrlError};

/// The channel of a registered component.
pub(crate) type Owner = usize;

/// Where a caller is sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) owner: Owner,
    pub(crate) instance: String,
    /// Numbers of the methods the caller may call.
    pub(crate) methods: Vec<u32>,
}

/// Living components in the order of their registration.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<(Owner, Instance)>,
}

impl Table {
    /// Registers an instance in place of what the same owner had registered; returns that.
    ///
    /// # Errors
    /// `Denied` when the peer may not be of a class; `FailedPrecondition` when somebody else has the name.
    pub(crate) fn register(
        &mut self,
        owner: Owner,
        instance: Instance,
        peer: &PeerIdentity,
    ) -> Result<Option<Instance>, XrlError> {
        for class in classes(&instance) {
            if !peer.classes.iter().any(|allowed| allowed == class) {
                let text = format!("role \"{}\" may not register as class \"{class}\"", peer.role);
                return Err(XrlError::denied(text));
            }
        }
        let taken = |(other, known): &(Owner, Instance)| *other != owner && known.name == instance.name;
        if instance.name.is_empty() || self.entries.iter().any(taken) {
            return Err(XrlError::failed_precondition(format!("the name \"{}\" is taken", instance.name)));
        }
        let replaced = self.remove(owner);
        self.entries.push((owner, instance));
        Ok(replaced)
    }

    /// The owner has gone.
    pub(crate) fn remove(&mut self, owner: Owner) -> Option<Instance> {
        let at = self.entries.iter().position(|entry| entry.0 == owner)?;
        Some(self.entries.remove(at).1)
    }

    /// Everybody.
    pub(crate) fn instances(&self) -> Vec<Instance> {
        self.entries.iter().map(|entry| entry.1.clone()).collect()
    }

    /// Those of a class; all for "*".
    pub(crate) fn of_class(&self, class: &str) -> Vec<Instance> {
        self.entries.iter().map(|entry| &entry.1).filter(|i| is_of_class(i, class)).cloned().collect()
    }

    /// Name of the instance that an owner has registered.
    pub(crate) fn name_of(&self, owner: Owner) -> Option<String> {
        self.entries.iter().find(|entry| entry.0 == owner).map(|entry| entry.1.name.clone())
    }

    /// The instance of a name or class; of several the one that registered last, processes of the class itself first.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn find(&self, target: &str) -> Result<(Owner, Instance), XrlError> {
        let (owner, instance) = self.best(target, |_| true).ok_or_else(|| dead(target))?;
        Ok((*owner, instance.clone()))
    }

    /// Where a caller with this role finds methods of a service (all it may call if none is named).
    ///
    /// # Errors
    /// `NotFound` when no such instance lives or it does not serve this; `Denied` when the role may not.
    pub(crate) fn resolve(
        &self,
        target: &str,
        service: &str,
        methods: &[u32],
        role: &str,
    ) -> Result<Resolved, XrlError> {
        let serves = |instance: &Instance| service_of(instance, service).is_some();
        let (owner, instance) = self.best(target, serves).ok_or_else(|| match self.find(target) {
            Ok((_, other)) => XrlError::not_found(format!("{} does not serve {service}", other.name)),
            Err(error) => error,
        })?;
        let offered = service_of(instance, service).map_or(&[][..], |service| &service.methods);
        let methods = allowed(offered, methods, role)
            .map_err(|method| XrlError::denied(denial(role, service, &instance.name, method)))?;
        Ok(Resolved { owner: *owner, instance: instance.name.clone(), methods })
    }

    fn best(&self, target: &str, serves: impl Fn(&Instance) -> bool) -> Option<&(Owner, Instance)> {
        let candidates =
            self.entries.iter().filter(|entry| is_of_class(&entry.1, target) || entry.1.name == target);
        // Of equals `max_by_key` takes the last.
        candidates.filter(|entry| serves(&entry.1)).max_by_key(|entry| entry.1.class == target)
    }
}

/// The wanted methods, or all allowed ones if none is named. An error is a method that is not allowed, if one is
/// to blame.
fn allowed<'a>(offered: &'a [Method], wanted: &[u32], role: &str) -> Result<Vec<u32>, Option<&'a Method>> {
    let open = |method: &Method| method.roles.iter().any(|allowed| allowed == "*" || allowed == role);
    if let Some(closed) = offered.iter().find(|method| wanted.contains(&method.id) && !open(method)) {
        return Err(Some(closed));
    }
    let chosen = offered.iter().filter(|method| wanted.is_empty() || wanted.contains(&method.id));
    let methods: Vec<u32> = chosen.filter(|method| open(method)).map(|method| method.id).collect();
    if methods.is_empty() { Err(None) } else { Ok(methods) }
}

fn denial(role: &str, service: &str, instance: &str, method: Option<&Method>) -> String {
    match method {
        Some(method) => {
            format!(
                "role \"{role}\" may not call {service}/{} of {instance} ({} may)",
                method.name,
                method.roles.join(", ")
            )
        }
        None => format!("role \"{role}\" may not call any such method of {service} of {instance}"),
    }
}

fn dead(target: &str) -> XrlError {
    XrlError::not_found(format!("no component \"{target}\" is running"))
}

fn service_of<'a>(instance: &'a Instance, name: &str) -> Option<&'a Service> {
    instance.services.iter().find(|service| service.name == name)
}

/// All classes of an instance: its own, and those its services are found under.
fn classes(instance: &Instance) -> impl Iterator<Item = &str> {
    let services = instance.services.iter().map(|service| service.class.as_str());
    std::iter::once(instance.class.as_str()).chain(services.filter(|class| !class.is_empty()))
}

/// Whether an instance is of a class; "*" is every class.
pub(crate) fn is_of_class(instance: &Instance, class: &str) -> bool {
    class == "*" || classes(instance).any(|own| own == class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn method(id: u32, roles: &[&str]) -> Method {
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        Method { id, name: format!("M{id}"), roles, since: 1, streaming: false }
    }

    fn instance(name: &str, class: &str, served_as: &str) -> Instance {
        let methods = vec![method(1, &["*"]), method(2, &["operator"])];
        let service = Service { name: "t.v1.T".to_owned(), class: served_as.to_owned(), methods };
        Instance { name: name.to_owned(), class: class.to_owned(), pid: 7, services: vec![service] }
    }

    fn anybody() -> PeerIdentity {
        PeerIdentity::new("fea").class("manager").class("transport")
    }

    #[test]
    fn a_role_gets_the_methods_it_may_call() {
        let mut table = Table::default();
        table.register(1, instance("fea-1", "fea", ""), &anybody()).expect("registers");
        let bgp = table.resolve("fea", "t.v1.T", &[], "bgp").expect("resolves");
        assert_eq!(bgp, Resolved { owner: 1, instance: "fea-1".to_owned(), methods: vec![1] });
        let operator = table.resolve("fea-1", "t.v1.T", &[], "operator").expect("resolves");
        assert_eq!(operator.methods, [1, 2]);
    }

    #[test]
    fn a_method_of_another_role_is_denied_by_name() {
        let mut table = Table::default();
        table.register(1, instance("fea-1", "fea", ""), &anybody()).expect("registers");
        let error = table.resolve("fea", "t.v1.T", &[1, 2], "bgp").expect_err("denied");
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert_eq!(error.message(), "role \"bgp\" may not call t.v1.T/M2 of fea-1 (operator may)");
    }

    #[test]
    fn a_process_registers_only_as_what_it_is() {
        let mut table = Table::default();
        let error =
            table.register(1, instance("x", "rib", ""), &PeerIdentity::new("bgp")).expect_err("denied");
        assert_eq!(error.kind(), ErrorKind::Denied);
        let error = table
            .register(1, instance("x", "bgp", "transport"), &PeerIdentity::new("bgp"))
            .expect_err("denied");
        assert_eq!(error.message(), "role \"bgp\" may not register as class \"transport\"");
    }

    #[test]
    fn of_several_of_a_class_the_last_is_found_but_its_own_processes_first() {
        let mut table = Table::default();
        table.register(1, instance("manager-1", "manager", "transport"), &anybody()).expect("registers");
        table.register(2, instance("fea-1", "fea", "transport"), &anybody()).expect("registers");
        assert_eq!(table.find("transport").expect("found").0, 2);
        table.register(3, instance("transport-1", "transport", ""), &anybody()).expect("registers");
        table.register(4, instance("manager-2", "manager", "transport"), &anybody()).expect("registers");
        assert_eq!(table.find("transport").expect("found").0, 3);
    }

    #[test]
    fn a_name_is_free_again_after_a_death() {
        let mut table = Table::default();
        table.register(1, instance("fea-1", "fea", ""), &anybody()).expect("registers");
        table.register(2, instance("fea-1", "fea", ""), &anybody()).expect_err("taken");
        assert_eq!(table.remove(1).map(|dead| dead.name), Some("fea-1".to_owned()));
        table.register(2, instance("fea-1", "fea", ""), &anybody()).expect("free");
    }
}
