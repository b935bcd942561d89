//! The text form: any method called by a line of text, without generated code.
//!
//! ```text
//! finder://bgp/bgp.v1/Clear?peer:txt=transit-1&soft:bool=true
//! ```
//! target (class or instance) / interface and version / method ? arguments; the grammar is in `xrl.rs`, the types of
//! arguments in `value.rs`. The functions here are what `holdfast call` consists of: each is given a [`Resolver`]
//! and writes its answer as it comes.

mod describe;
mod interface;
mod value;
mod xrl;

use std::io::Write;

use prost_reflect::DynamicMessage;

use crate::{Resolver, XrlError};
use interface::Interfaces;
pub use value::{from_arguments, to_arguments, to_json};
pub use xrl::{Argument, Xrl};

/// How replies are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As arguments of the text form.
    Text,
    /// As one line of JSON.
    Json,
}

/// Calls a method by its text form and writes the reply on a line; for a stream, a line for each message as it comes.
///
/// # Errors
/// `InvalidArgument` when the text is not an XRL or does not fit the method; what the call failed with; `Cancelled`
/// when `out` takes no more.
pub async fn call(
    resolver: &Resolver,
    text: &str,
    format: Format,
    out: &mut impl Write,
) -> Result<(), XrlError> {
    let xrl = match text.strip_prefix(SIGNAL) {
        Some(signal) => signal_call(signal)?,
        None => text.parse()?,
    };
    let interfaces = Interfaces::of(resolver, &xrl.target).await?;
    let method = interfaces.method(&xrl)?;
    let request = from_arguments(method.input(), &xrl.arguments)?;
    let channel = interfaces.open(resolver, &method).await?;
    let mut raw = channel.start(method.id, &request, Vec::new());
    let decode = |body: &[u8]| {
        DynamicMessage::decode(method.output(), body)
            .map_err(|error| XrlError::internal(format!("cannot read the reply: {error}")))
    };
    if !method.streaming {
        let reply = std::future::poll_fn(|cx| raw.poll_end(cx)).await?;
        return write_message(&decode(&reply.body)?, format, out);
    }
    while let Some(item) = raw.next().await? {
        write_message(&decode(&item.body)?, format, out)?;
    }
    Ok(())
}

/// What the text form of a signal begins with: `signal://bgp-4711/TERM`.
const SIGNAL: &str = "signal://";

/// The call that sends a signal: the manager of the router resolves the target, and has the keeper send it.
fn signal_call(text: &str) -> Result<Xrl, XrlError> {
    let parts = text.split_once('/').filter(|(target, signal)| !target.is_empty() && !signal.is_empty());
    let (target, signal) = parts.ok_or_else(|| {
        XrlError::invalid_argument(format!(
            "\"{SIGNAL}{text}\" is not {SIGNAL}TARGET/SIGNAL, as in {SIGNAL}bgp/TERM"
        ))
    })?;
    let argument = |(name, value): (&str, &str)| Argument {
        name: name.to_owned(),
        kind: "txt".to_owned(),
        value: value.to_owned(),
    };
    Ok(Xrl {
        target: "manager".to_owned(),
        interface: "manager.v1".to_owned(),
        method: "Signal".to_owned(),
        arguments: [("target", target), ("signal", signal)].map(argument).into(),
    })
}

fn write_message(message: &DynamicMessage, format: Format, out: &mut impl Write) -> Result<(), XrlError> {
    let line = match format {
        Format::Text => to_arguments(message),
        Format::Json => to_json(message)?,
    };
    write_line(out, &line)
}

fn write_line(out: &mut impl Write, line: &str) -> Result<(), XrlError> {
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.map_err(|error| XrlError::cancelled(format!("cannot write: {error}")))
}

/// Writes every method of every living component, one a line, as it is called.
///
/// # Errors
/// Of the Finder; `Cancelled` when `out` takes no more.
pub async fn list(resolver: &Resolver, out: &mut impl Write) -> Result<(), XrlError> {
    let finder = interface::finder_instance();
    let reply = resolver.finder()?.list(crate::finder_api::v1::ListRequest {}).await?;
    for instance in std::iter::once(finder).chain(reply.instances) {
        write_line(out, &format!("# {} (class {}, pid {})", instance.name, instance.class, instance.pid))?;
        for service in &instance.services {
            let target = if service.class.is_empty() { &instance.class } else { &service.class };
            for method in &service.methods {
                let interface = interface::package(&service.name);
                write_line(out, &format!("finder://{target}/{interface}/{}", method.name))?;
            }
        }
    }
    Ok(())
}

/// Writes the interfaces of a target ("bgp"), or one of them ("bgp/bgp.v1"): methods, who may call them, messages,
/// and what the interface files say about them.
///
/// # Errors
/// `NotFound`; of the Finder; `Cancelled` when `out` takes no more.
pub async fn describe(resolver: &Resolver, target: &str, out: &mut impl Write) -> Result<(), XrlError> {
    let target = target.trim_start_matches(xrl::SCHEME);
    let (target, interface) = target.split_once('/').unwrap_or((target, ""));
    let interfaces = Interfaces::of(resolver, target).await?;
    let text = describe::interfaces(&interfaces, interface)?;
    write_line(out, text.trim_end())
}

/// Resolves a target and interface ("bgp/bgp.v1", or a whole XRL) and writes what this caller may call there, in
/// resolved form for each family that carries it: family, address, instance, method and its number; at the end how
/// its process is sent a signal.
///
/// # Errors
/// `InvalidArgument` without an interface; of the Finder; `Cancelled` when `out` takes no more.
pub async fn resolve(resolver: &Resolver, target: &str, out: &mut impl Write) -> Result<(), XrlError> {
    let target = target.trim_start_matches(xrl::SCHEME);
    let mut parts = target.split(['/', '?']);
    let (Some(target), Some(interface)) = (parts.next(), parts.next()) else {
        return Err(XrlError::invalid_argument("name a target and an interface: bgp/bgp.v1"));
    };
    let wanted = parts.next().unwrap_or("");
    let interfaces = Interfaces::of(resolver, target).await?;
    for line in interfaces.resolve(resolver, interface, wanted).await? {
        write_line(out, &line)?;
    }
    Ok(())
}
