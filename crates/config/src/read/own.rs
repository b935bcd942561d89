//! Sections that belong to one process: their rows say everything, and what comes out is JSON.

use std::collections::BTreeSet;

use holdfast_types::{ParsePrefixError, Prefix};
use serde_json::{Map, Value};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    Config, Schema,
    describe::{Default, Form, HIDDEN, Key, Table, Type},
    input::{At, Names, Problem, Section},
    processes::Owned,
    read::{is_interface_name, vrf},
    schema::ProcessSection,
    secrets::{self, MOST_SECRETS},
};

/// Names that values may refer to.
pub(super) struct Known<'n, 'a> {
    pub(super) policies: &'n Names<'a>,
    pub(super) vrfs: &'n Names<'a>,
    pub(super) profiles: &'n Names<'a>,
    pub(super) origins: &'n Names<'a>,
    /// Whether BGP brings routes, too.
    pub(super) has_bgp: bool,
}

/// A section that belongs to one process, by the process's name; `None`: it is not there.
pub(super) fn section(
    root: &Section<'_>,
    own: &Owned,
    known: &Known<'_, '_>,
    rib_enabled: bool,
) -> Option<(&'static str, ProcessSection)> {
    let section = root.section(own.section.key, own.section.key)?;
    if own.routing.is_some() && !rib_enabled {
        let problem = Problem::new("a protocol has nobody to give routes to without a rib");
        section.report.add(&section.span, problem.hint("remove it, or set `enabled = true` in [rib]"));
    }
    Some((own.process, process_section(&section, own, known)))
}

/// Adds the sections that are not there, and that the rest of the configuration implies, with the defaults of their keys.
pub(super) fn imply(config: &mut Config, root: &Section<'_>, schema: Schema, known: &Known<'_, '_>) {
    let empty = DeTable::new();
    for own in schema.sections().iter().filter(|own| !root.has(own.section.key)) {
        if own.section.implied.is_some_and(|implied| implied(config)) {
            let section = Section::implied(root.report, own.section.key, &empty, own.section.table);
            config.sections.insert(own.process, process_section(&section, own, known));
        }
    }
}

fn process_section(section: &Section<'_>, own: &Owned, known: &Known<'_, '_>) -> ProcessSection {
    let values = read(section, known);
    if let (Some(check), false) = (own.section.check, section.report.has_problems())
        && let Err(wrong) = check(&values)
    {
        section.report.add(&section.span, Problem::new(wrong));
    }
    let secrets = secrets::apart(own.section.table, &values).1;
    if Value::from(secrets).to_string().len() > MOST_SECRETS {
        let problem = Problem::new("its secrets are too long");
        section.report.add(&section.span, problem.expected(format!("{MOST_SECRETS} octets, as JSON")));
    }
    let mut interfaces = BTreeSet::new();
    gather(own.section.table, &values, &mut interfaces);
    ProcessSection { values, interfaces, routing: own.routing }
}

/// The interfaces that a table and those below it name, each with the VRF that stands beside it.
fn gather(table: &Table, values: &Map<String, Value>, found: &mut BTreeSet<(Option<String>, String)>) {
    let is_vrf = |of: &Type| matches!(of, Type::Name("vrf", _));
    let vrf = table.keys.iter().find(|key| is_vrf(&key.value)).and_then(|key| values.get(key.name)?.as_str());
    let named = table.keys.iter().filter_map(|key| match (&key.value, values.get(key.name)?) {
        (Type::Form(Form::Interface), name) => Some(std::slice::from_ref(name)),
        (Type::List(Type::Form(Form::Interface)), Value::Array(names)) => Some(names.as_slice()),
        _ => None,
    });
    let interfaces = named.flatten().filter_map(Value::as_str);
    found.extend(interfaces.map(|interface| (vrf.map(str::to_owned), interface.to_owned())));
    for key in table.keys {
        let (Some(below), Some(value)) = (key.value.table(), values.get(key.name)) else { continue };
        match value {
            Value::Object(values) => gather(below, values, found),
            Value::Array(entries) => {
                entries.iter().filter_map(Value::as_object).for_each(|values| gather(below, values, found));
            }
            _ => {}
        }
    }
}

/// A section, with what its keys are by default. Everything wrong is reported.
fn read(section: &Section<'_>, known: &Known<'_, '_>) -> Map<String, Value> {
    let described = section.described();
    let values =
        described.keys.iter().filter_map(|key| Some((key.name.to_owned(), value(section, key, known)?)));
    values.collect()
}

/// The value of a key, or that which it has by default; `None`: it has none, or a wrong one.
fn value(section: &Section<'_>, key: &'static Key, known: &Known<'_, '_>) -> Option<Value> {
    let Some(found) = section.value(key.name) else {
        return match key.default {
            Default::Required => {
                section.misses(key.name, &key.value.words());
                None
            }
            Default::Is(text) => default(text),
            Default::Else(_) => None,
        };
    };
    match key.value {
        Type::Table(_) => Some(read(&section.section(key.name, key.name)?, known).into()),
        Type::Tables(_, by) => Some(tables(section, key, by, known)),
        of => match one(&of, found, known) {
            Ok(value) => Some(value),
            Err(wrong) => {
                section.report.add(&wrong.span, wrong.value);
                None
            }
        },
    }
}

/// The tables of a list, each with a name of its own; where they say a VRF, of its own there.
fn tables(section: &Section<'_>, key: &'static Key, by: &'static str, known: &Known<'_, '_>) -> Value {
    let mut names = Names::new(section.report, key.name);
    let entries = section.sections(key.name, key.name).into_iter().map(|entry| {
        let values = read(&entry, known);
        if let Some(name) = values.get(by) {
            let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
            let at = At { value: name, span: entry.span_of(by) };
            names.declare(&vrf::scoped(&at, values.get("vrf").and_then(Value::as_str)));
        }
        Value::from(values)
    });
    entries.collect()
}

/// A default as it is described.
fn default(text: &str) -> Option<Value> {
    let table: toml::Table = format!("x = {text}").parse().ok()?;
    serde_json::to_value(table.get("x")?).ok()
}

/// A single value, or a list; what is wrong, and where.
fn one(of: &Type, found: &Spanned<DeValue<'_>>, known: &Known<'_, '_>) -> Result<Value, At<Problem>> {
    let wrong = |problem: Problem| At { value: problem.expected(of.words()), span: found.span() };
    let text = || found.get_ref().as_str().ok_or_else(|| wrong(Problem::new("this is no text")));
    match *of {
        Type::Bool => {
            let value = found.get_ref().as_bool();
            value.map(Value::from).ok_or_else(|| wrong(Problem::new("this is no truth value")))
        }
        Type::Number(low, high) => {
            let number = crate::input::integer(found.get_ref());
            let number = number.ok_or_else(|| wrong(Problem::new("this is no number")))?;
            let number = u64::try_from(number).ok().filter(|number| (low..=high).contains(number));
            number.map(Value::from).ok_or_else(|| wrong(Problem::new("the number is out of range")))
        }
        Type::Asn => {
            let asn = <holdfast_types::Asn as crate::input::Value>::read(found.get_ref());
            asn.map(|asn| asn.0.into()).map_err(wrong)
        }
        Type::Word(words) => {
            let text = text()?;
            let problem =
                || Problem::new(format!("`{text}` is no value here")).suggest(text, words.iter().copied());
            words.contains(&text).then(|| text.into()).ok_or_else(|| wrong(problem()))
        }
        Type::Text(..) => text().map(Value::from),
        Type::Secret(..) => {
            let wrong = |problem: Problem| wrong(problem).map(Problem::secret);
            let text = found.get_ref().as_str().ok_or_else(|| wrong(Problem::new("this is no text")))?;
            shown(text).map_or_else(|| Ok(text.into()), |problem| Err(wrong(problem)))
        }
        Type::Form(form) => {
            let text = text()?;
            form.read(text).map(|()| text.into()).map_err(wrong)
        }
        Type::Name(kind, _) => {
            let names = match kind {
                "policy" => known.policies,
                "vrf" => known.vrfs,
                "bfd.profile" => known.profiles,
                _ => known.origins,
            };
            let name = At { value: text()?.to_owned(), span: found.span() };
            if kind != "protocol" || name.value != "bgp" || !known.has_bgp {
                names.refer(&name);
            }
            Ok(name.value.into())
        }
        Type::List(of) => match found.get_ref() {
            DeValue::Array(entries) => entries.iter().map(|entry| one(of, entry, known)).collect(),
            _ => Ok(Value::Array(vec![one(of, found, known)?])),
        },
        Type::Either(types) => {
            let mut tried = types.iter().map(|of| one(of, found, known));
            tried.find_map(Result::ok).ok_or_else(|| wrong(Problem::new("this fits none of its forms")))
        }
        Type::Moded(_) | Type::Table(_) | Type::Like(..) | Type::Tables(..) | Type::Templates(..) => {
            Err(wrong(Problem::new("a table is not expected here")))
        }
    }
}

/// What is wrong with a text as a secret: it was taken from what commands show in the place of one.
pub(super) fn shown(text: &str) -> Option<Problem> {
    (text == HIDDEN).then(|| Problem::new(format!("`{HIDDEN}` is what is shown in the place of a secret")))
}

impl Form {
    /// Whether a text is one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(self, text: &str) -> Result<(), Problem> {
        let is_none = || Problem::new(format!("`{text}` is no {}", self.words()));
        match self {
            Self::Address => text.parse::<std::net::IpAddr>().map(drop).map_err(|_| is_none()),
            Self::Prefix => match text.parse::<Prefix>() {
                Err(error @ ParsePrefixError::HostBits { .. }) => Err(Problem::from_error(&error)),
                read => read.map(drop).map_err(|_| is_none()),
            },
            Self::Interface => is_interface_name(text).then_some(()).ok_or_else(is_none),
        }
    }
}
