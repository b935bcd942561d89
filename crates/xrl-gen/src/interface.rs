//! The options of services and methods, read and checked.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor, ReflectMessage, ServiceDescriptor};

/// A service as its options describe it.
pub(crate) struct Interface {
    /// Full protobuf name ("bgp.v1.Bgp").
    pub(crate) name: String,
    pub(crate) id: u16,
    pub(crate) class: String,
    /// File in the output folder with its descriptor set.
    pub(crate) descriptor_set: String,
    /// By name as in the file.
    pub(crate) methods: BTreeMap<String, MethodOptions>,
}

/// A method as its options describe it.
pub(crate) struct MethodOptions {
    pub(crate) id: u16,
    pub(crate) roles: Vec<String>,
    pub(crate) since: u32,
    pub(crate) request_fds: bool,
    pub(crate) reply_fds: bool,
    pub(crate) families: Vec<String>,
}

/// Families that a method may name.
const FAMILIES: [&str; 3] = ["local", "unix", "tcp"];

/// All services of the pool by full name.
pub(crate) fn read(pool: &DescriptorPool) -> Result<BTreeMap<String, Interface>> {
    let mut interfaces = BTreeMap::new();
    let mut ids = BTreeMap::new();
    let mut names = BTreeSet::new();
    for service in pool.services() {
        let interface = interface(&service).with_context(|| format!("service {}", service.full_name()))?;
        if let Some(other) = ids.insert(interface.id, interface.name.clone()) {
            bail!("{} and {other} have the same id {}", interface.name, interface.id);
        }
        for method in interface.methods.keys() {
            let unique = names.insert(format!("{}/{method}", service.package_name()));
            ensure!(unique, "method name {method} occurs twice in package {}", service.package_name());
        }
        interfaces.insert(interface.name.clone(), interface);
    }
    Ok(interfaces)
}

fn interface(service: &ServiceDescriptor) -> Result<Interface> {
    let options = extension(&service.options(), "holdfast.service")?;
    let mut methods = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for method in service.methods() {
        let options = method_options(&method).with_context(|| format!("method {}", method.name()))?;
        ensure!(ids.insert(options.id), "method {}: id {} is taken", method.name(), options.id);
        methods.insert(method.name().to_owned(), options);
    }
    Ok(Interface {
        name: service.full_name().to_owned(),
        id: number(&options)?,
        class: text(&options, "class"),
        descriptor_set: set_file_name(service.parent_file().name()),
        methods,
    })
}

fn method_options(method: &MethodDescriptor) -> Result<MethodOptions> {
    ensure!(!method.is_client_streaming(), "client streaming is not supported");
    let options = extension(&method.options(), "holdfast.method")?;
    let roles = words(&text(&options, "roles"));
    ensure!(!roles.is_empty(), "roles is empty: nobody could call it");
    let flag = |name| field(&options, name).as_bool().unwrap_or(false);
    let (request_fds, reply_fds) = (flag("request_fds"), flag("reply_fds"));
    // Interfaces from before the option was there knew no tcp.
    let before_tcp = options.descriptor().get_field_by_name("families").is_none();
    Ok(MethodOptions {
        id: number(&options)?,
        roles,
        since: field(&options, "since").as_u32().unwrap_or(0).max(1),
        request_fds,
        reply_fds,
        families: families(&text(&options, "families"), before_tcp || request_fds || reply_fds)?,
    })
}

/// The families that are named, or all that can carry the method.
fn families(named: &str, local_only: bool) -> Result<Vec<String>> {
    let named = words(named);
    if let Some(unknown) = named.iter().find(|name| !FAMILIES.contains(&name.as_str())) {
        bail!("there is no family {unknown}");
    }
    Ok(match named.is_empty() {
        true => words(if local_only { "local,unix" } else { "local,unix,tcp" }),
        false => named,
    })
}

/// What is between commas.
fn words(text: &str) -> Vec<String> {
    text.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

/// The value of one of our extensions.
fn extension(options: &DynamicMessage, name: &str) -> Result<DynamicMessage> {
    let pool = options.descriptor().parent_pool().clone();
    let extension = pool.get_extension_by_name(name).context("holdfast/options.proto is not imported")?;
    ensure!(options.has_extension(&extension), "option ({name}) is missing");
    let value = options.get_extension(&extension);
    value.as_message().cloned().with_context(|| format!("option ({name}) is not a message"))
}

fn field(options: &DynamicMessage, name: &str) -> prost_reflect::Value {
    options.get_field_by_name(name).map_or(prost_reflect::Value::Bool(false), std::borrow::Cow::into_owned)
}

fn text(options: &DynamicMessage, name: &str) -> String {
    field(options, name).as_str().unwrap_or_default().to_owned()
}

fn number(options: &DynamicMessage) -> Result<u16> {
    let id = field(options, "id").as_u32().unwrap_or(0);
    ensure!((1..=0xffff).contains(&id), "id must be 1 to 65535");
    Ok(u16::try_from(id)?)
}

/// Name of the file with the descriptor set of an interface file.
pub(crate) fn set_file_name(proto: &str) -> String {
    format!("{}.fds", proto.trim_end_matches(".proto").replace('/', "."))
}

/// An encoded `FileDescriptorSet` with the file and everything it imports, options included.
pub(crate) fn descriptor_set(pool: &DescriptorPool, file: &str) -> Result<Vec<u8>> {
    let mut names = Vec::new();
    super::with_dependencies(pool, file, &mut names)?;
    let mut set = Vec::new();
    for name in names {
        let file = pool.get_file_by_name(&name).with_context(|| format!("{name} was not compiled"))?;
        // `FileDescriptor::encode` keeps the options; prost-types would lose them. Hence the field by hand.
        prost::encoding::bytes::encode(1, &file.encode_to_vec(), &mut set);
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(service: &str) -> Result<BTreeMap<String, Interface>> {
        let folder =
            std::env::temp_dir().join(format!("holdfast-xrl-gen-{}-{}", std::process::id(), service.len()));
        std::fs::create_dir_all(&folder)?;
        let text = format!(
            "syntax = \"proto3\"; package t.v1; import \"holdfast/options.proto\"; message E {{}} {service}"
        );
        std::fs::write(folder.join("t.proto"), text)?;
        let api = concat!(env!("CARGO_MANIFEST_DIR"), "/../../api");
        let mut compiler = protox::Compiler::new([folder.as_path(), std::path::Path::new(api)])?;
        compiler.open_file("t.proto")?;
        let interfaces = read(&compiler.descriptor_pool());
        std::fs::remove_dir_all(&folder)?;
        interfaces
    }

    #[test]
    fn options_are_read() {
        let interfaces = compile(
            "service A { option (holdfast.service) = { id: 7, class: \"a\" }; \
             rpc M(E) returns (E) { option (holdfast.method) = { id: 3, roles: \"x, y\", reply_fds: true }; } }",
        )
        .expect("compiles");
        let service = &interfaces["t.v1.A"];
        assert_eq!((service.id, service.class.as_str()), (7, "a"));
        let method = &service.methods["M"];
        assert_eq!((method.id, method.since), (3, 1));
        assert_eq!(method.roles, ["x", "y"]);
        assert!(method.reply_fds && !method.request_fds);
        assert_eq!(method.families, ["local", "unix"], "descriptors do not travel over tcp");
    }

    #[test]
    fn families_are_those_that_are_named_and_known() {
        let method = |families: &str| {
            let method = format!("{{ id: 1, roles: \"*\", families: \"{families}\" }}");
            compile(&format!(
                "service A {{ option (holdfast.service) = {{ id: 7 }}; \
                 rpc M(E) returns (E) {{ option (holdfast.method) = {method}; }} }}"
            ))
        };
        assert_eq!(method("").expect("compiles")["t.v1.A"].methods["M"].families, FAMILIES);
        assert_eq!(method("unix").expect("compiles")["t.v1.A"].methods["M"].families, ["unix"]);
        let error = format!("{:#}", method("pigeon").err().expect("refused"));
        assert!(error.contains("there is no family pigeon"), "{error}");
    }

    #[test]
    fn a_method_without_options_is_refused() {
        let service = "service A { option (holdfast.service) = { id: 7 }; rpc M(E) returns (E); }";
        let error = format!("{:#}", compile(service).err().expect("refused"));
        assert!(error.contains("method M: option (holdfast.method) is missing"), "{error}");
    }

    #[test]
    fn two_methods_with_one_number_are_refused() {
        let error = compile(
            "service A { option (holdfast.service) = { id: 7 }; \
             rpc M(E) returns (E) { option (holdfast.method) = { id: 3, roles: \"*\" }; } \
             rpc N(E) returns (E) { option (holdfast.method) = { id: 3, roles: \"*\" }; } }",
        );
        let error = format!("{:#}", error.err().expect("refused"));
        assert!(error.contains("method N: id 3 is taken"), "{error}");
    }
}
