//! Who is registered, and who may call what. Pure: channels are only numbers here.

use std::collections::BTreeSet;

use prost::Message;

use super::living::Living;

use crate::finder_api::v1::{Instance, Method, Service};
use crate::{PeerIdentity, XrlError};

/// Longest name of an instance, in octets.
const LONGEST_NAME: usize = 128;
/// Octets of what is kept of an instance: some hundred methods.
const MOST_OCTETS: usize = 64 << 10;

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

/// What happened to an instance, and the classes that began or ended with it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct News {
    pub(crate) instance: Instance,
    pub(crate) classes: Vec<String>,
}

/// What a registration has changed.
#[derive(Debug, PartialEq)]
pub(crate) struct Registered {
    /// What the owner was before.
    pub(crate) gone: Option<News>,
    pub(crate) born: News,
}

/// Living components in the order of their registration.
#[derive(Debug, Default)]
pub(crate) struct Table {
    living: Living,
}

impl Table {
    /// Registers an instance in place of what the same owner had registered.
    ///
    /// # Errors
    /// `Denied` when the peer may not be of a class; `InvalidArgument` when the name is not one of the class;
    /// `FailedPrecondition` when somebody else is found under the name, or is, or shall be, the only one of the class.
    pub(crate) fn register(
        &mut self,
        owner: Owner,
        instance: Instance,
        peer: &PeerIdentity,
    ) -> Result<Registered, XrlError> {
        for class in classes(&instance) {
            if !peer.classes.iter().any(|allowed| is_of(class, allowed)) {
                let text = format!("role \"{}\" may not register as class \"{class}\"", peer.role);
                return Err(XrlError::denied(text));
            }
        }
        is_named_after_its_class(&instance)?;
        is_modest(&instance)?;
        self.is_free(owner, &instance)?;
        self.is_alone(owner, &instance)?;
        let replaced = self.living.take(owner);
        let before: BTreeSet<&str> = replaced.iter().flat_map(classes).collect();
        let begins = |class: &&str| !before.contains(class) && !self.living.has_class(class);
        let begun: BTreeSet<String> = classes(&instance).filter(begins).map(str::to_owned).collect();
        self.living.add(owner, instance.clone());
        let gone = replaced.map(|instance| self.news_of_the_dead(instance));
        // One that only has more or less to offer has not died.
        let gone = gone.filter(|gone| gone.instance.name != instance.name || !gone.classes.is_empty());
        Ok(Registered { gone, born: News { instance, classes: begun.into_iter().collect() } })
    }

    /// Whether nobody else is found under the name of an instance already, as an instance or as a class.
    fn is_free(&self, owner: Owner, instance: &Instance) -> Result<(), XrlError> {
        let name = instance.name.as_str();
        let named = self.living.of_name(name).into_iter();
        let classed = self.living.of_class(name).filter(|_| name != instance.class);
        match named.chain(classed).find(|(other, _)| *other != owner) {
            Some(_) => Err(XrlError::failed_precondition(format!("the name \"{name}\" is taken"))),
            None => Ok(()),
        }
    }

    /// Whether the class of an instance has room for it.
    fn is_alone(&self, owner: Owner, instance: &Instance) -> Result<(), XrlError> {
        let same = |entry: &&(Owner, Instance)| entry.0 != owner && entry.1.class == instance.class;
        let mut others = self.living.of_class(&instance.class).filter(same);
        match others.find(|(_, other)| other.sole || instance.sole) {
            Some((_, Instance { name, .. })) => Err(XrlError::failed_precondition(format!(
                "{} cannot register: {name} lives, and class \"{}\" has one instance only",
                instance.name, instance.class
            ))),
            None => Ok(()),
        }
    }

    /// The owner has gone: who died, and which classes with it.
    pub(crate) fn remove(&mut self, owner: Owner) -> Option<News> {
        let instance = self.living.take(owner)?;
        Some(self.news_of_the_dead(instance))
    }

    fn news_of_the_dead(&self, instance: Instance) -> News {
        let ended: BTreeSet<&str> =
            classes(&instance).filter(|class| !self.living.has_class(class)).collect();
        let ended = ended.into_iter().map(str::to_owned).collect();
        News { classes: ended, instance }
    }

    /// Everybody.
    pub(crate) fn instances(&self) -> Vec<Instance> {
        self.living.all().map(|entry| entry.1.clone()).collect()
    }

    /// The births of those of a class or of a name, as if they were now; of all for "*".
    pub(crate) fn births(&self, target: &str) -> Vec<News> {
        let birth =
            |((_, instance), classes): (&(Owner, Instance), _)| News { instance: instance.clone(), classes };
        self.living.answering(target).into_iter().map(birth).collect()
    }

    /// Name of the instance that an owner has registered.
    pub(crate) fn name_of(&self, owner: Owner) -> Option<String> {
        self.living.of(owner).map(|instance| instance.name.clone())
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
        let candidates = self.living.candidates(target).filter(|(_, entry)| serves(&entry.1));
        candidates.max_by_key(|(turn, entry)| (entry.1.class == target, *turn)).map(|(_, entry)| entry)
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
pub(super) fn classes(instance: &Instance) -> impl Iterator<Item = &str> {
    let services = instance.services.iter().map(|service| service.class.as_str());
    std::iter::once(instance.class.as_str()).chain(services.filter(|class| !class.is_empty()))
}

/// Whether an instance is of a class or has this name; "*" is every class.
pub(crate) fn answers_to(instance: &Instance, target: &str) -> bool {
    target == "*" || instance.name == target || classes(instance).any(|own| own == target)
}

/// Whether a class is what somebody may be: that itself, or that in a scope ("bgp@blue").
fn is_of(class: &str, allowed: &str) -> bool {
    let rest = class.strip_prefix(allowed);
    rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('@').is_some_and(|scope| !scope.is_empty()))
}

/// The class is what has been looked at, and the name is what callers may ask for: one goes with the other, lest
/// somebody be found in place of another process.
fn is_named_after_its_class(instance: &Instance) -> Result<(), XrlError> {
    let Instance { name, class, .. } = instance;
    match name.strip_prefix(class.as_str()) {
        Some(rest) if rest.is_empty() || rest.starts_with('-') => Ok(()),
        _ => Err(XrlError::invalid_argument(format!("the name \"{name}\" does not begin with \"{class}-\""))),
    }
}

/// Whether its name may be shown to anybody, and what it says of itself kept: a protocol may be anybody's.
fn is_modest(instance: &Instance) -> Result<(), XrlError> {
    let unfit = |c: char| c.is_control() || c.is_whitespace();
    if instance.name.len() > LONGEST_NAME || instance.name.contains(unfit) {
        let text = format!("a name has {LONGEST_NAME} octets at most, without blanks and control characters");
        return Err(XrlError::invalid_argument(text));
    }
    if instance.encoded_len() > MOST_OCTETS {
        return Err(XrlError::invalid_argument(format!("a registration has {MOST_OCTETS} octets at most")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn method(id: u32, roles: &[&str]) -> Method {
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        Method { id, name: format!("M{id}"), roles, since: 1, ..Method::default() }
    }

    fn instance(name: &str, class: &str, served_as: &str) -> Instance {
        let methods = vec![method(1, &["*"]), method(2, &["operator"])];
        let service = Service { name: "t.v1.T".to_owned(), class: served_as.to_owned(), methods };
        let (name, class) = (name.to_owned(), class.to_owned());
        Instance { name, class, pid: 7, services: vec![service], sole: false }
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
            table.register(1, instance("rib-1", "rib", ""), &PeerIdentity::new("bgp")).expect_err("denied");
        assert_eq!(error.kind(), ErrorKind::Denied);
        let error = table
            .register(1, instance("bgp-1", "bgp", "transport"), &PeerIdentity::new("bgp"))
            .expect_err("denied");
        assert_eq!(error.message(), "role \"bgp\" may not register as class \"transport\"");
    }

    #[test]
    fn what_is_too_long_or_could_not_be_shown_is_not_registered() {
        let mut table = Table::default();
        let igp = PeerIdentity::new("protocol").class("igp");
        let long = format!("igp-{}", "x".repeat(LONGEST_NAME));
        for name in ["igp-\u{1b}[31m", "igp-1\n", "igp-a b", &long] {
            let error = table.register(1, instance(name, "igp", ""), &igp).expect_err("not to be shown");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
        let mut large = instance("igp-1", "igp", "");
        let service = large.services[0].clone();
        large.services.resize(MOST_OCTETS / service.encoded_len() + 1, service);
        let error = table.register(1, large, &igp).expect_err("too large");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        table.register(1, instance("igp-1", "igp", ""), &igp).expect("registers");
    }

    #[test]
    fn nobody_takes_a_name_that_is_anothers() {
        let mut table = Table::default();
        let igp = PeerIdentity::new("protocol").class("igp").class("igp-lite");
        for name in ["", "transport", "rib", "bgp-4712", "igps-1", "ig"] {
            let error = table.register(1, instance(name, "igp", ""), &igp).expect_err("not of its class");
            assert_eq!(error.message(), format!("the name \"{name}\" does not begin with \"igp-\""));
        }
        table.register(2, instance("igp-lite-1", "igp-lite", ""), &igp).expect("registers");
        let error = table.register(1, instance("igp-lite", "igp", ""), &igp).expect_err("a class");
        assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
        table.register(1, instance("igp", "igp", ""), &igp).expect("the only one needs no number");
        table.register(3, instance("igp", "igp", ""), &igp).expect_err("taken");
        table.register(3, instance("igp-2", "igp", ""), &igp).expect("beside one that is named as the class");
    }

    #[test]
    fn who_may_be_of_a_class_may_be_so_in_any_scope() {
        let mut table = Table::default();
        table.register(1, instance("fea-1", "fea", "transport"), &anybody()).expect("registers");
        table
            .register(2, instance("fea@blue-1", "fea@blue", "transport@blue"), &anybody())
            .expect("registers");
        table.register(3, instance("fea@red-1", "fea@red", "transport@red"), &anybody()).expect("registers");
        assert_eq!(["fea", "fea@blue", "transport@red"].map(|c| table.find(c).expect("found").0), [1, 2, 3]);
        let bgp = PeerIdentity::new("bgp");
        for class in ["rib@blue", "bgp@", "bgpd", "bg"] {
            let error =
                table.register(4, instance(&format!("{class}-1"), class, ""), &bgp).expect_err("another");
            assert_eq!(error.kind(), ErrorKind::Denied, "{class}");
        }
        let other = instance("bgp-1", "bgp@blue", "");
        assert_eq!(table.register(4, other, &bgp).expect_err("its name").kind(), ErrorKind::InvalidArgument);
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
        assert_eq!(table.remove(1).map(|dead| dead.instance.name), Some("fea-1".to_owned()));
        table.register(2, instance("fea-1", "fea", ""), &anybody()).expect("free");
    }

    #[test]
    fn a_sole_instance_stays_alone_whoever_came_first() {
        let sole = |name: &str| Instance { sole: true, ..instance(name, "fea", "") };
        let mut table = Table::default();
        table.register(1, sole("fea-1"), &anybody()).expect("registers");
        let text = "fea-2 cannot register: fea-1 lives, and class \"fea\" has one instance only";
        for second in [sole("fea-2"), instance("fea-2", "fea", "")] {
            let error = table.register(2, second, &anybody()).expect_err("not alone");
            assert_eq!((error.kind(), error.message()), (ErrorKind::FailedPrecondition, text));
        }
        table.register(3, instance("manager-1", "manager", ""), &anybody()).expect("another class");
        table.register(1, sole("fea-9"), &anybody()).expect("in its own place");
        table.remove(1);
        table.register(2, instance("fea-2", "fea", ""), &anybody()).expect("registers");
        table.register(1, sole("fea-1"), &anybody()).expect_err("fea-2 was there first");
    }

    #[test]
    fn a_class_begins_with_its_first_instance_and_ends_with_its_last() {
        let mut table = Table::default();
        let mut register =
            |owner, instance| table.register(owner, instance, &anybody()).expect("registers").born.classes;
        assert_eq!(register(1, instance("fea-1", "fea", "transport")), ["fea", "transport"]);
        assert_eq!(register(2, instance("manager-1", "manager", "transport")), ["manager"]);
        assert_eq!(register(3, instance("fea-2", "fea", "")), [""; 0]);
        let births: Vec<_> = table.births("transport").into_iter().map(|news| news.classes).collect();
        assert_eq!(births, [vec!["fea", "transport"], vec!["manager"]]);
        assert_eq!(table.births("fea-2").len(), 1);
        assert_eq!(table.remove(1).map(|news| news.classes), Some(vec![]));
        assert_eq!(
            table.remove(2).map(|news| news.classes),
            Some(vec!["manager".into(), "transport".into()])
        );
    }

    #[test]
    fn who_registers_as_something_else_was_that_before() {
        let mut table = Table::default();
        table.register(1, instance("fea-1", "fea", "transport"), &anybody()).expect("registers");
        let same = table.register(1, instance("fea-1", "fea", "transport"), &anybody()).expect("again");
        assert_eq!((same.gone, same.born.classes.len()), (None, 0));
        let less = table.register(1, instance("fea-1", "fea", ""), &anybody()).expect("again");
        assert_eq!(less.gone.map(|news| news.classes), Some(vec!["transport".to_owned()]));
        let other = table.register(1, instance("fea-2", "fea", ""), &anybody()).expect("again");
        assert_eq!(other.gone.map(|news| (news.instance.name, news.classes)), Some(("fea-1".into(), vec![])));
    }
}
