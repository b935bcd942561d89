//! Interfaces as text for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use prost_reflect::{
    EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor, MethodDescriptor,
};

use super::interface::{Interfaces, package};
use crate::XrlError;
use crate::finder_api::v1::Service;

/// Types used by the services described, by full name.
#[derive(Default)]
struct Types {
    messages: BTreeMap<String, MessageDescriptor>,
    enums: BTreeMap<String, EnumDescriptor>,
}

/// All services of an interface (of all interfaces for ""), then the types they use.
pub(crate) fn interfaces(interfaces: &Interfaces, interface: &str) -> Result<String, XrlError> {
    let mut text = String::new();
    let mut types = Types::default();
    for service in interfaces.services(interface) {
        let descriptor = interfaces.pool.get_service_by_name(&service.name);
        let descriptor =
            descriptor.ok_or_else(|| XrlError::internal(format!("{} is not described", service.name)))?;
        comment(&mut text, &descriptor.parent_file(), descriptor.path(), "");
        let _ = writeln!(text, "interface {} (service {})", package(&service.name), service.name);
        for method in descriptor.methods() {
            describe_method(&mut text, service, &method);
            types.add(method.input());
            types.add(method.output());
        }
        text.push('\n');
    }
    if text.is_empty() {
        return Err(XrlError::not_found(format!(
            "{} has no interface {interface}",
            interfaces.instance.name
        )));
    }
    types.messages.values().for_each(|message| describe_message(&mut text, message));
    types.enums.values().for_each(|kind| describe_enum(&mut text, kind));
    Ok(text)
}

impl Types {
    /// A message with everything it contains.
    fn add(&mut self, message: MessageDescriptor) {
        if self.messages.contains_key(message.full_name()) {
            return;
        }
        self.messages.insert(message.full_name().to_owned(), message.clone());
        for field in message.fields() {
            match field.kind() {
                Kind::Message(entry) if field.is_map() => self.add_kind(entry.map_entry_value_field().kind()),
                kind => self.add_kind(kind),
            }
        }
    }

    fn add_kind(&mut self, kind: Kind) {
        match kind {
            Kind::Message(message) => self.add(message),
            Kind::Enum(kind) => {
                self.enums.insert(kind.full_name().to_owned(), kind);
            }
            _ => {}
        }
    }
}

fn describe_method(text: &mut String, service: &Service, method: &MethodDescriptor) {
    comment(text, &method.parent_file(), method.path(), "  ");
    let stream = if method.is_server_streaming() { "stream of " } else { "" };
    let (input, output) = (method.input(), method.output());
    let _ = write!(text, "  {}({}) -> {stream}{}", method.name(), input.name(), output.name());
    if let Some(known) = service.methods.iter().find(|known| known.name == method.name()) {
        let (roles, families) = (known.roles.join(", "), known.families.join(", "));
        let _ = write!(text, "   [may call: {roles}; over {families}; since {}]", known.since);
    }
    text.push('\n');
}

fn describe_message(text: &mut String, message: &MessageDescriptor) {
    comment(text, &message.parent_file(), message.path(), "");
    let _ = writeln!(text, "message {}", message.full_name());
    for field in message.fields() {
        comment(text, &message.parent_file(), field.path(), "  ");
        let _ = writeln!(text, "  {}: {}", field.name(), type_name(&field));
    }
    text.push('\n');
}

fn describe_enum(text: &mut String, kind: &EnumDescriptor) {
    comment(text, &kind.parent_file(), kind.path(), "");
    let _ = writeln!(text, "enum {}", kind.full_name());
    for value in kind.values() {
        comment(text, &kind.parent_file(), value.path(), "  ");
        let _ = writeln!(text, "  {} = {}", value.name(), value.number());
    }
    text.push('\n');
}

fn type_name(field: &FieldDescriptor) -> String {
    let kind = match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
            return format!("map of {:?} to {:?}", key.kind(), value.kind()).to_lowercase();
        }
        Kind::Message(message) => message.name().to_owned(),
        Kind::Enum(kind) => kind.name().to_owned(),
        scalar => format!("{scalar:?}").to_lowercase(),
    };
    if field.is_list() { format!("list of {kind}") } else { kind }
}

/// The comment of what is at a path of a file, as `//` lines.
fn comment(text: &mut String, file: &FileDescriptor, path: &[i32], indent: &str) {
    let locations = file.file_descriptor_proto().source_code_info.as_ref().map(|info| &info.location);
    let found = locations.into_iter().flatten().find(|location| location.path == path);
    let lines = found.and_then(|location| location.leading_comments.as_deref()).unwrap_or_default().lines();
    for line in lines {
        let _ = writeln!(text, "{indent}// {}", line.trim());
    }
}
