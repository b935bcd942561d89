//! Files that speak of the same (RFC 8416 section 4.2).

use std::collections::BTreeMap;

use holdfast_types::{Asn, Prefix};

use super::SlurmError;

/// What each file speaks of.
#[derive(Default)]
pub(super) struct Claims<'a>(Vec<File<'a>>);

/// What one file speaks of, in filters and assertions.
pub(super) struct File<'a> {
    name: &'a str,
    pub(super) prefixes: Vec<Prefix>,
    /// ASes of routers' keys.
    pub(super) routers: Vec<Asn>,
    /// ASes of ASPAs; what the RFC says of keys, said of these.
    pub(super) customers: Vec<Asn>,
}

impl<'a> Claims<'a> {
    pub(super) fn of(&mut self, name: &'a str) -> &mut File<'a> {
        self.0.push(File { name, prefixes: Vec::new(), routers: Vec::new(), customers: Vec::new() });
        self.0.last_mut().expect("one was pushed")
    }

    pub(super) fn check(&self) -> Result<(), SlurmError> {
        self.prefixes()?;
        self.asns("router keys of", |file| &file.routers)?;
        self.asns("the ASPA of", |file| &file.customers)
    }

    /// In the order of prefixes, those that a prefix lies in are the ones that were passed and not left yet.
    fn prefixes(&self) -> Result<(), SlurmError> {
        let claims = self.0.iter().enumerate();
        let mut all: Vec<(Prefix, usize)> = claims
            .flat_map(|(file, claims)| claims.prefixes.iter().map(move |prefix| (*prefix, file)))
            .collect();
        all.sort_unstable();
        let mut around: Vec<(Prefix, usize)> = Vec::new();
        for (prefix, file) in all {
            while around.pop_if(|(outer, _)| !outer.contains(prefix)).is_some() {}
            // All that is around is of one file, or it would have ended here before.
            if let Some((_, other)) = around.last().filter(|(_, other)| *other != file) {
                return Err(self.overlap(file, *other, prefix.to_string()));
            }
            around.push((prefix, file));
        }
        Ok(())
    }

    fn asns(&self, what: &str, of: for<'b> fn(&'b File<'a>) -> &'b Vec<Asn>) -> Result<(), SlurmError> {
        let mut seen = BTreeMap::new();
        for (file, claims) in self.0.iter().enumerate() {
            for asn in of(claims) {
                let first = *seen.entry(*asn).or_insert(file);
                if first != file {
                    return Err(self.overlap(file, first, format!("{what} AS{asn}")));
                }
            }
        }
        Ok(())
    }

    fn overlap(&self, file: usize, other: usize, what: String) -> SlurmError {
        SlurmError::Overlap { file: self.0[file].name.into(), other: self.0[other].name.into(), what }
    }
}
