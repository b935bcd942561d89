//! Whether interfaces still are what was released: they may grow, and nothing else.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use prost_reflect::{
    Cardinality, DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor,
};

use crate::interface::{self, Interface, MethodOptions};

/// An encoded `FileDescriptorSet` of every interface file below a folder, without comments: what is kept of a release.
///
/// # Errors
/// When a file does not compile.
pub fn snapshot(root: &Path) -> Result<Vec<u8>> {
    let mut files = Vec::new();
    crate::find_files(root, "proto", &mut files)?;
    files.sort();
    let mut compiler = protox::Compiler::new([root])?;
    compiler.include_source_info(false).include_imports(true).open_files(files)?;
    Ok(compiler.encode_file_descriptor_set())
}

/// What of a released snapshot is missing or different in the present one, a line for each. Additions are none.
///
/// # Errors
/// When one of them is not a descriptor set of interfaces.
pub fn breaking(released: &[u8], present: &[u8]) -> Result<Vec<String>> {
    let read = |set| -> Result<_> {
        let pool = DescriptorPool::decode(set).context("a descriptor set")?;
        let interfaces = interface::read(&pool)?;
        Ok((pool, interfaces))
    };
    let ((released, old), (present, new)) = (read(released)?, read(present)?);
    let mut broken = Broken(Vec::new());
    for (name, service) in &old {
        match new.get(name) {
            Some(now) => broken.service(service, now),
            None => broken.say(name, "is gone"),
        }
    }
    for method in released.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        broken.signature(&method, &present);
    }
    for message in released.all_messages().filter(|message| is_ours(message.full_name())) {
        broken.message(&message, present.get_message_by_name(message.full_name()));
    }
    for kind in released.all_enums().filter(|kind| is_ours(kind.full_name())) {
        broken.values(&kind, present.get_enum_by_name(kind.full_name()));
    }
    Ok(broken.0)
}

/// Not protobuf's own.
fn is_ours(name: &str) -> bool {
    !name.starts_with("google.protobuf.")
}

/// What was found so far.
struct Broken(Vec<String>);

impl Broken {
    fn say(&mut self, what: &str, how: &str) {
        self.0.push(format!("{what}: {how}"));
    }

    fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, property: &str, old: &T, new: &T) {
        if old != new {
            self.say(what, &format!("{property} was {old:?} and is {new:?}"));
        }
    }

    fn service(&mut self, old: &Interface, new: &Interface) {
        self.same(&old.name, "number", &old.id, &new.id);
        self.same(&old.name, "class", &old.class, &new.class);
        for (name, method) in &old.methods {
            let name_of_all = format!("{}/{name}", old.name);
            match new.methods.get(name) {
                Some(now) => self.method(&name_of_all, method, now),
                None => self.say(&name_of_all, "is gone"),
            }
        }
    }

    fn method(&mut self, name: &str, old: &MethodOptions, new: &MethodOptions) {
        self.same(name, "number", &old.id, &new.id);
        self.same(name, "since", &old.since, &new.since);
        self.same(name, "request_fds", &old.request_fds, &new.request_fds);
        self.same(name, "reply_fds", &old.reply_fds, &new.reply_fds);
        self.kept(name, "role", &old.roles, &new.roles);
        self.kept(name, "family", &old.families, &new.families);
    }

    /// What was allowed stays so.
    fn kept(&mut self, name: &str, what: &str, old: &[String], new: &[String]) {
        let lost = old.iter().filter(|word| !new.contains(word) && !new.iter().any(|word| word == "*"));
        lost.for_each(|word| self.say(name, &format!("{what} \"{word}\" may no longer call it")));
    }

    fn signature(&mut self, old: &MethodDescriptor, present: &DescriptorPool) {
        let service = present.get_service_by_name(old.parent_service().full_name());
        // One that is gone was said before.
        let new = service.and_then(|service| service.methods().find(|new| new.name() == old.name()));
        let Some(new) = new else { return };
        let name = old.full_name();
        self.same(name, "request", &old.input().full_name(), &new.input().full_name());
        self.same(name, "reply", &old.output().full_name(), &new.output().full_name());
        self.same(name, "streaming", &old.is_server_streaming(), &new.is_server_streaming());
    }

    fn message(&mut self, old: &MessageDescriptor, new: Option<MessageDescriptor>) {
        let Some(new) = new else { return self.say(old.full_name(), "is gone") };
        for field in old.fields() {
            match new.get_field(field.number()) {
                Some(now) => self.field(&field, &now),
                None => self.say(field.full_name(), &format!("field {} is gone", field.number())),
            }
        }
    }

    fn field(&mut self, old: &FieldDescriptor, new: &FieldDescriptor) {
        let name = old.full_name();
        let oneof = |field: &FieldDescriptor| field.containing_oneof().map(|oneof| oneof.name().to_owned());
        // The text form and JSON call fields by their names.
        self.same(name, "name", &old.name(), &new.name());
        self.same(name, "type", &type_of(old), &type_of(new));
        self.same(name, "repeated", &is_repeated(old), &is_repeated(new));
        self.same(name, "presence", &old.supports_presence(), &new.supports_presence());
        self.same(name, "oneof", &oneof(old), &oneof(new));
    }

    fn values(&mut self, old: &EnumDescriptor, new: Option<EnumDescriptor>) {
        let Some(new) = new else { return self.say(old.full_name(), "is gone") };
        let now: BTreeMap<_, _> =
            new.values().map(|value| (value.name().to_owned(), value.number())).collect();
        for value in old.values() {
            self.same(value.full_name(), "number", &Some(&value.number()), &now.get(value.name()));
        }
    }
}

fn is_repeated(field: &FieldDescriptor) -> bool {
    field.cardinality() == Cardinality::Repeated
}

fn type_of(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(kind) => kind.full_name().to_owned(),
        scalar => format!("{scalar:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASED: &str = r#"
        service A { option (holdfast.service) = { id: 7, class: "a" };
          rpc M(Q) returns (P) { option (holdfast.method) = { id: 3, roles: "x, y" }; }
          rpc S(Q) returns (stream P) { option (holdfast.method) = { id: 4, roles: "*", reply_fds: true }; } }
        enum E { ZERO = 0; ONE = 1; }
        message Q { uint32 number = 1; repeated string names = 2; E kind = 3; optional bool flag = 4; }
        message P { Q inner = 1; oneof either { bytes left = 2; bytes right = 3; } }
    "#;

    /// The snapshot of an interface file with this in it.
    fn set(name: &str, text: &str) -> Vec<u8> {
        let folder = std::env::temp_dir().join(format!("holdfast-compat-{}-{name}", std::process::id()));
        std::fs::create_dir_all(folder.join("holdfast")).expect("a folder");
        let options = concat!(env!("CARGO_MANIFEST_DIR"), "/../../api/holdfast/options.proto");
        std::fs::copy(options, folder.join("holdfast/options.proto")).expect("copied");
        let text = format!("syntax = \"proto3\"; package t.v1; import \"holdfast/options.proto\"; {text}");
        std::fs::write(folder.join("t.proto"), text).expect("written");
        let set = snapshot(&folder).expect("compiles");
        std::fs::remove_dir_all(&folder).expect("removed");
        set
    }

    /// What is said of the released interface with one thing replaced.
    fn changed(number: usize, old: &str, new: &str) -> Vec<String> {
        assert!(RELEASED.contains(old), "{old}");
        let name = |which: &str| format!("{which}-{number}");
        let (released, present) =
            (set(&name("old"), RELEASED), set(&name("new"), &RELEASED.replace(old, new)));
        breaking(&released, &present).expect("two descriptor sets")
    }

    #[test]
    fn whatever_was_released_may_not_go_or_change() {
        let cases = [
            ("service A {", "service B {", "t.v1.A: is gone"),
            ("id: 7", "id: 8", "t.v1.A: number was 7 and is 8"),
            ("class: \"a\"", "class: \"b\"", "t.v1.A: class was \"a\" and is \"b\""),
            ("rpc M(", "rpc N(", "t.v1.A/M: is gone"),
            ("id: 3", "id: 5", "t.v1.A/M: number was 3 and is 5"),
            ("x, y", "y", "t.v1.A/M: role \"x\" may no longer call it"),
            ("roles: \"*\"", "roles: \"x\"", "t.v1.A/S: role \"*\" may no longer call it"),
            (
                "roles: \"x, y\"",
                "roles: \"x, y\", families: \"unix\"",
                "family \"tcp\" may no longer call it",
            ),
            ("reply_fds: true", "request_fds: true", "t.v1.A/S: reply_fds was true and is false"),
            ("(stream P)", "(P)", "t.v1.A.S: streaming was true and is false"),
            ("rpc M(Q)", "rpc M(P)", "t.v1.A.M: request was \"t.v1.Q\" and is \"t.v1.P\""),
            (
                "rpc M(Q) returns (P)",
                "rpc M(Q) returns (Q)",
                "t.v1.A.M: reply was \"t.v1.P\" and is \"t.v1.Q\"",
            ),
            ("uint32 number = 1;", "", "t.v1.Q.number: field 1 is gone"),
            ("uint32 number = 1;", "uint32 number = 9;", "t.v1.Q.number: field 1 is gone"),
            ("uint32 number", "uint32 count", "t.v1.Q.number: name was \"number\" and is \"count\""),
            ("uint32 number", "uint64 number", "t.v1.Q.number: type was \"uint32\" and is \"uint64\""),
            ("repeated string", "string", "t.v1.Q.names: repeated was true and is false"),
            ("optional bool", "bool", "t.v1.Q.flag: presence was true and is false"),
            ("oneof either", "oneof other", "t.v1.P.left: oneof was Some(\"either\") and is Some(\"other\")"),
            ("ONE = 1", "ONE = 2", "t.v1.ONE: number was Some(1) and is Some(2)"),
            ("ONE = 1", "UN = 1", "t.v1.ONE: number was Some(1) and is None"),
        ];
        for (number, (old, new, expected)) in cases.into_iter().enumerate() {
            let said = changed(number, old, new);
            assert!(said.iter().any(|line| line.contains(expected)), "{old} -> {new}: {said:?}");
        }
        let said = changed(100, "message Q {", "message Q2 { Q q = 1; } message Q {");
        assert!(said.is_empty(), "{said:?}");
    }

    #[test]
    fn additions_break_nothing() {
        let cases = [
            ("rpc M(", "rpc T(Q) returns (Q) { option (holdfast.method) = { id: 9, roles: \"z\" }; } rpc M("),
            ("x, y", "x, y, z"),
            ("x, y", "*"),
            ("uint32 number = 1;", "uint32 number = 1; uint32 more = 9;"),
            ("ONE = 1;", "ONE = 1; TWO = 2;"),
            ("bytes right = 3;", "bytes right = 3; bytes middle = 4;"),
        ];
        for (number, (old, new)) in cases.into_iter().enumerate() {
            assert_eq!(changed(200 + number, old, new), [""; 0], "{old} -> {new}");
        }
    }
}
