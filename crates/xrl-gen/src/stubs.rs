//! The code for one service: server trait, dispatcher, client.
//!
//! For `service Bgp` the package's module gets `trait BgpServer`, `struct BgpDispatcher<S: BgpServer>` (implements
//! `holdfast_xrl::Service`) and `struct BgpClient` (implements `holdfast_xrl::Client`) with one function per method.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use prost_build::{Comments, Method, Service, ServiceGenerator};

use crate::interface::{Interface, MethodOptions};

/// Generates the stubs of every service whose options were read before.
pub(crate) struct Stubs {
    interfaces: BTreeMap<String, Interface>,
}

impl Stubs {
    pub(crate) fn new(interfaces: BTreeMap<String, Interface>) -> Self {
        Self { interfaces }
    }
}

impl ServiceGenerator for Stubs {
    fn generate(&mut self, service: Service, buf: &mut String) {
        let name = format!("{}.{}", service.package, service.proto_name);
        if let Some(interface) = self.interfaces.get(&name) {
            let stub = Stub { service: &service, interface };
            buf.push_str(&stub.server());
            buf.push_str(&stub.dispatcher());
            buf.push_str(&stub.client());
        }
    }
}

struct Stub<'a> {
    service: &'a Service,
    interface: &'a Interface,
}

impl Stub<'_> {
    /// The methods with their options.
    fn methods(&self) -> impl Iterator<Item = (&Method, &MethodOptions)> {
        self.service.methods.iter().filter_map(|m| Some((m, self.interface.methods.get(&m.proto_name)?)))
    }

    fn server(&self) -> String {
        let mut code = docs(&self.service.comments);
        let _ = writeln!(code, "pub trait {}Server: 'static {{", self.service.name);
        for (method, options) in self.methods() {
            code.push_str(&docs(&method.comments));
            let _ = writeln!(
                code,
                "fn {}(&self, cx: &::holdfast_xrl::CallContext, request: {}{}{}) \
                 -> impl ::core::future::Future<Output = ::core::result::Result<{}, ::holdfast_xrl::XrlError>>;",
                method.name,
                method.input_type,
                if options.request_fds { FDS_PARAMETER } else { "" },
                if method.server_streaming { format!(", replies: {}", sink(method)) } else { String::new() },
                if method.server_streaming { "()".to_owned() } else { reply_type(method, options) },
            );
        }
        code + "}\n"
    }

    fn dispatcher(&self) -> String {
        let name = &self.service.name;
        let mut arms = String::new();
        for (method, options) in self.methods() {
            arms.push_str(&dispatch_arm(name, method, options));
        }
        format!(
            "/// Serves a [`{name}Server`] on a node.\n\
             pub struct {name}Dispatcher<S>(pub ::std::rc::Rc<S>);\n\
             impl<S> {name}Dispatcher<S> {{\n\
             /// Serves this.\n\
             pub fn new(server: S) -> Self {{ Self(::std::rc::Rc::new(server)) }}\n\
             }}\n\
             impl<S: {name}Server> ::holdfast_xrl::Service for {name}Dispatcher<S> {{\n\
             fn info(&self) -> &'static ::holdfast_xrl::ServiceInfo {{ \
             <{name}Client as ::holdfast_xrl::Client>::SERVICE }}\n\
             fn dispatch(&self, call: ::holdfast_xrl::IncomingCall<'_>) -> ::holdfast_xrl::Handler {{\n\
             let server = ::std::rc::Rc::clone(&self.0);\n\
             match call.method() {{\n{arms}_ => call.unknown(),\n}}\n}}\n}}\n"
        )
    }

    fn client(&self) -> String {
        let name = &self.service.name;
        let mut code = format!(
            "/// Calls a [`{name}Server`] over a channel.\n\
             #[derive(Clone, Debug)]\n\
             pub struct {name}Client {{ channel: ::holdfast_xrl::Channel }}\n\
             impl ::holdfast_xrl::Client for {name}Client {{\n\
             const SERVICE: &'static ::holdfast_xrl::ServiceInfo = &{};\n\
             fn new(channel: ::holdfast_xrl::Channel) -> Self {{ Self {{ channel }} }}\n\
             fn channel(&self) -> &::holdfast_xrl::Channel {{ &self.channel }}\n}}\n\
             impl {name}Client {{\n",
            self.info()
        );
        for (method, options) in self.methods() {
            let _ = writeln!(
                code,
                "/// Number of `{}` on the wire.\npub const {}: u32 = {:#x};",
                method.proto_name,
                constant(method),
                u32::from(self.interface.id) << 16 | u32::from(options.id)
            );
        }
        for (method, options) in self.methods() {
            code.push_str(&client_method(method, options));
        }
        code + "}\n" + &self.configure()
    }

    /// For a service that takes a part of the configuration.
    fn configure(&self) -> String {
        let Some((method, _)) = self.methods().find(|(method, _)| method.proto_name == "Configure") else {
            return String::new();
        };
        format!(
            "impl ::holdfast_xrl::Configure for {}Client {{\n\
             type Configuration = {};\n\
             const METHOD: u32 = Self::{};\n}}\n",
            self.service.name,
            method.input_type,
            constant(method)
        )
    }

    /// The `ServiceInfo` expression.
    fn info(&self) -> String {
        let Interface { name, id, class, descriptor_set, .. } = self.interface;
        let mut methods = String::new();
        for (method, options) in self.methods() {
            let _ = write!(
                methods,
                "::holdfast_xrl::MethodInfo {{ id: Self::{}, name: {:?}, roles: &{:?}, since: {}, streaming: {}, families: &{:?} }},",
                constant(method),
                method.proto_name,
                options.roles,
                options.since,
                method.server_streaming,
                options.families
            );
        }
        format!(
            "::holdfast_xrl::ServiceInfo {{ name: {name:?}, id: {id}, class: {class:?}, methods: &[{methods}], \
             descriptor_set: include_bytes!({descriptor_set:?}) }}"
        )
    }
}

const FDS_PARAMETER: &str = ", fds: ::std::vec::Vec<::std::os::fd::OwnedFd>";

fn sink(method: &Method) -> String {
    format!("::holdfast_xrl::ReplySink<{}>", method.output_type)
}

fn reply_type(method: &Method, options: &MethodOptions) -> String {
    if options.reply_fds {
        format!("({}, ::std::vec::Vec<::std::os::fd::OwnedFd>)", method.output_type)
    } else {
        method.output_type.clone()
    }
}

fn dispatch_arm(service: &str, method: &Method, options: &MethodOptions) -> String {
    let fds = if options.request_fds { ", fds" } else { "" };
    let pattern = if options.request_fds { "fds" } else { "_" };
    // By its full name: a method may be called as one of another trait (`drop`).
    let call = format!("{service}Server::{}(&*server, &cx, request{fds}", method.name);
    let constant = constant(method);
    let body = match (method.server_streaming, options.reply_fds) {
        (true, _) => {
            return format!(
                "{service}Client::{constant} => call.streaming(move |cx, request, {pattern}, replies| \
                 async move {{ {call}, replies).await }}),\n"
            );
        }
        (false, true) => format!("{call}).await"),
        (false, false) => format!("Ok(({call}).await?, ::std::vec::Vec::new()))"),
    };
    format!(
        "{service}Client::{constant} => call.unary(move |cx, request, {pattern}| async move {{ {body} }}),\n"
    )
}

fn client_method(method: &Method, options: &MethodOptions) -> String {
    let Method { name, input_type, output_type, .. } = method;
    let parameter = if options.request_fds { FDS_PARAMETER } else { "" };
    let fds = if options.request_fds { "fds" } else { "::std::vec::Vec::new()" };
    let (returns, how) = match (method.server_streaming, options.reply_fds) {
        (true, _) => (format!("::holdfast_xrl::ReplyStream<{output_type}>"), "open"),
        (false, true) => (format!("::holdfast_xrl::CallWithFds<{output_type}>"), "call_with_fds"),
        (false, false) => (format!("::holdfast_xrl::Call<{output_type}>"), "call"),
    };
    format!(
        "{}pub fn {name}(&self, request: {input_type}{parameter}) -> {returns} {{ \
         self.channel.{how}(Self::{}, &request, {fds}) }}\n",
        docs(&method.comments),
        constant(method)
    )
}

/// `ShowSummary` becomes `SHOW_SUMMARY`.
fn constant(method: &Method) -> String {
    method.name.trim_start_matches("r#").to_uppercase()
}

fn docs(comments: &Comments) -> String {
    let mut text = String::new();
    comments.append_with_indent(0, &mut text);
    text
}
