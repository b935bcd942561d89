//! Local exceptions: SLURM files (RFC 8416), with ASPAs (draft-ietf-sidrops-aspa-slurm-04, `"slurmVersion": 2`).
//!
//! Files are read strictly: a member that is not defined, or that is there twice, is an error, so that a slip of the pen does not silently leave
//! a filter out. Two things are taken as others write them: base64 in its plain or in its URL form, with `=` at the end
//! or without; and `customerAsid` for `customerAsn` in filters. The draft does not say whether an asserted ASPA replaces
//! or extends what caches say of the customer: it extends; who wants it replaced filters the customer as well.

mod member;
mod overlap;
mod strict;

use holdfast_rtr_wire::{MOST_PROVIDERS, Record};
use holdfast_types::{Asn, Aspa, Prefix, RouterKey, Ski, Vrp};

use crate::{Dataset, filter::Filters, view::View};
use member::{Fields, Member};
use overlap::Claims;
use strict::Strict;

/// What an operator knows better than the caches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exceptions {
    pub(crate) filters: Filters,
    pub(crate) assertions: Dataset,
}

/// What is wrong, with the file and where in it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SlurmError {
    /// A file is not as it has to be.
    #[error("{file}: {path}: {reason}")]
    Member {
        /// The file's name.
        file: String,
        /// Where: `locallyAddedAssertions.prefixAssertions[3].asn`.
        path: String,
        /// What.
        reason: String,
    },
    /// A file is no JSON, or an object in it has a member twice.
    #[error("{file}: {reason}")]
    Json {
        /// The file's name.
        file: String,
        /// What the parser says, and in which line.
        reason: String,
    },
    /// Two files speak of the same; then none of them may be used (RFC 8416 section 4.2).
    #[error("{file} and {other} both speak of {what}")]
    Overlap {
        /// One file's name.
        file: String,
        /// The other's.
        other: String,
        /// A prefix or an AS.
        what: String,
    },
}

impl Exceptions {
    /// Reads files, each a name and its text.
    ///
    /// # Errors
    /// Any of them is not as it has to be, or two of them overlap: then nothing of all may be used.
    pub fn parse<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, SlurmError> {
        let (mut exceptions, mut claims) = (Self::default(), Claims::default());
        for (name, text) in files {
            let json =
                |error: serde_json::Error| SlurmError::Json { file: name.into(), reason: error.to_string() };
            let Strict(value) = serde_json::from_str(text).map_err(json)?;
            let wrong = |(path, reason)| SlurmError::Member { file: name.into(), path, reason };
            exceptions.file(Member::root(&value), claims.of(name)).map_err(wrong)?;
        }
        claims.check()?;
        Ok(exceptions)
    }

    /// What is left of data, and what is added.
    pub fn apply(&self, data: &Dataset) -> Dataset {
        View { sets: vec![data], exceptions: self }.dataset()
    }

    /// Whether what caches say of it is left out.
    pub fn filters_vrp(&self, vrp: Vrp) -> bool {
        self.filters.vrp(vrp)
    }

    /// Whether what caches say of it is left out.
    pub fn filters_router_key(&self, key: &RouterKey) -> bool {
        self.filters.router_key(key.asn, key.ski)
    }

    /// Whether what caches say of the customer's ASPA is left out.
    pub fn filters_aspa(&self, customer: Asn) -> bool {
        self.filters.aspa(customer)
    }

    /// What holds whatever caches say.
    pub fn assertions(&self) -> &Dataset {
        &self.assertions
    }

    fn file(&mut self, root: Member<'_>, claims: &mut overlap::File<'_>) -> Result<(), Wrong> {
        let mut fields = root.object()?;
        let version = fields.required("slurmVersion")?;
        let with_aspas = match version.number(2)? {
            1 => false,
            2 => true,
            other => return Err(version.wrong(format!("version {other}; 1 and 2 are known"))),
        };
        let mut filters = fields.required("validationOutputFilters")?.object()?;
        let mut assertions = fields.required("locallyAddedAssertions")?.object()?;
        fields.end()?;

        each(&mut filters, "prefixFilters", |fields| self.prefix_filter(fields, claims))?;
        each(&mut filters, "bgpsecFilters", |fields| self.bgpsec_filter(fields, claims))?;
        each(&mut assertions, "prefixAssertions", |fields| self.prefix_assertion(fields, claims))?;
        each(&mut assertions, "bgpsecAssertions", |fields| self.bgpsec_assertion(fields, claims))?;
        if with_aspas {
            each(&mut filters, "aspaFilters", |fields| self.aspa_filter(fields, claims))?;
            each(&mut assertions, "aspaAssertions", |fields| self.aspa_assertion(fields, claims))?;
        }
        filters.end()?;
        assertions.end()
    }

    fn prefix_filter(
        &mut self,
        fields: &mut Fields<'_>,
        claims: &mut overlap::File<'_>,
    ) -> Result<(), Wrong> {
        let prefix = fields.optional("prefix").map(prefix).transpose()?;
        let asn = fields.optional("asn").map(asn).transpose()?;
        if prefix.is_none() && asn.is_none() {
            return Err(fields.wrong("neither `prefix` nor `asn`"));
        }
        claims.prefixes.extend(prefix);
        self.filters.add_vrps(prefix, asn);
        Ok(())
    }

    fn bgpsec_filter(
        &mut self,
        fields: &mut Fields<'_>,
        claims: &mut overlap::File<'_>,
    ) -> Result<(), Wrong> {
        let asn = fields.optional("asn").map(asn).transpose()?;
        let ski = fields.optional("SKI").map(ski).transpose()?;
        if asn.is_none() && ski.is_none() {
            return Err(fields.wrong("neither `asn` nor `SKI`"));
        }
        claims.routers.extend(asn);
        self.filters.add_router_keys(asn, ski);
        Ok(())
    }

    fn aspa_filter(&mut self, fields: &mut Fields<'_>, claims: &mut overlap::File<'_>) -> Result<(), Wrong> {
        let customer = match fields.optional("customerAsid") {
            Some(member) => member,
            None => fields.required("customerAsn")?,
        };
        let customer = asn(customer)?;
        claims.customers.push(customer);
        self.filters.add_aspa(customer);
        Ok(())
    }

    fn prefix_assertion(
        &mut self,
        fields: &mut Fields<'_>,
        claims: &mut overlap::File<'_>,
    ) -> Result<(), Wrong> {
        let (prefix, asn) = (prefix(fields.required("prefix")?)?, asn(fields.required("asn")?)?);
        let max_length = fields.optional("maxPrefixLength").map(|member| member.number(128)).transpose()?;
        let max_length = max_length.map_or(prefix.length(), |length| length as u8);
        let vrp = Vrp::new(prefix, max_length, asn).map_err(|error| fields.wrong(&error.to_string()))?;
        claims.prefixes.push(prefix);
        self.assertions.insert(Record::Vrp(vrp));
        Ok(())
    }

    fn bgpsec_assertion(
        &mut self,
        fields: &mut Fields<'_>,
        claims: &mut overlap::File<'_>,
    ) -> Result<(), Wrong> {
        let asn = asn(fields.required("asn")?)?;
        let ski = ski(fields.required("SKI")?)?;
        let spki = fields.required("routerPublicKey")?.base64()?;
        claims.routers.push(asn);
        self.assertions.insert(Record::RouterKey(RouterKey { asn, ski, spki }));
        Ok(())
    }

    fn aspa_assertion(
        &mut self,
        fields: &mut Fields<'_>,
        claims: &mut overlap::File<'_>,
    ) -> Result<(), Wrong> {
        let customer = asn(fields.required("customerAsn")?)?;
        let member = fields.required("providerAsns")?;
        let providers: Vec<Asn> = member.array()?.map(asn).collect::<Result<_, _>>()?;
        let mixed = providers.len() > 1 && providers.contains(&Asn(0));
        if providers.is_empty() || mixed || providers.len() > MOST_PROVIDERS {
            return Err(member.wrong("no provider, too many, or AS 0 beside others".into()));
        }
        claims.customers.push(customer);
        let aspa = Aspa::new(customer, providers);
        if self.assertions.aspa(customer).is_some_and(|other| *other != aspa) {
            return Err(fields.wrong("the customer has another assertion already"));
        }
        self.assertions.insert(Record::Aspa(aspa));
        Ok(())
    }
}

/// Where, and what.
type Wrong = (String, String);

/// The objects of an array; each may have a `comment`, and nothing that was not asked for.
fn each(
    parent: &mut Fields<'_>,
    name: &'static str,
    mut take: impl FnMut(&mut Fields<'_>) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    for item in parent.required(name)?.array()? {
        let mut fields = item.object()?;
        fields.optional("comment").map(|comment| comment.text().map(drop)).transpose()?;
        take(&mut fields)?;
        fields.end()?;
    }
    Ok(())
}

fn prefix(member: Member<'_>) -> Result<Prefix, Wrong> {
    member.text()?.parse().map_err(|error| member.wrong(format!("{error}")))
}

fn asn(member: Member<'_>) -> Result<Asn, Wrong> {
    member.number(u32::MAX).map(Asn)
}

fn ski(member: Member<'_>) -> Result<Ski, Wrong> {
    let octets = member.base64()?;
    let length = octets.len();
    octets.try_into().map(Ski).map_err(|_| member.wrong(format!("{length} octets, not the 20 of a SKI")))
}
