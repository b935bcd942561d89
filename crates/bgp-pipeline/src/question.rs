//! What origin validation is asked about the routes of an UPDATE.

use std::{cell::RefCell, rc::Rc};

use holdfast_origin_validation::Authorizations;
use holdfast_policy::Validity;
use holdfast_types::{Asn, IpPrefix, Prefix};

use crate::{class::ClassId, validity::States};

/// What is asked about prefixes that have one set.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// Where it is asked who originates what, and who does. Else the answer is the same for all.
    pub(crate) origin: Option<(Rc<RefCell<Authorizations>>, Option<Asn>)>,
    /// The answer where that is not asked, and what is known of the path.
    pub(crate) known: States,
    /// It has been asked about this prefix.
    pub(crate) first: Option<(Prefix, Validity)>,
}

/// What has been asked about an UPDATE while its set was looked for: it is asked again, of all its prefixes, at once.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The class of the source's sets as they come.
    pub(crate) own: ClassId,
    pub(crate) question: Question,
}

impl Question {
    /// With this answer.
    pub(crate) fn states(&self, validity: Validity) -> States {
        States { validity, ..self.known }
    }

    pub(crate) fn ask(&self, prefix: Prefix) -> Validity {
        match &self.origin {
            Some((authorizations, origin)) => authorizations.borrow().vrps.validate(prefix, *origin),
            None => self.known.validity,
        }
    }

    /// Asks about each of some prefixes.
    pub(crate) fn ask_each<P: IpPrefix>(&self, prefixes: &[P], answers: &mut Vec<Validity>) {
        answers.clear();
        let Some((authorizations, origin)) = &self.origin else {
            return answers.resize(prefixes.len(), self.known.validity);
        };
        let known = self.first.zip(prefixes.first()).filter(|((asked, _), first)| *asked == (**first).into());
        answers.extend(known.map(|((_, validity), _)| validity));
        let vrps = &authorizations.borrow().vrps;
        let rest = prefixes[answers.len()..].iter();
        answers.extend(rest.map(|prefix| vrps.validate_in(*prefix, *origin)));
    }
}
