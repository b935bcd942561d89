//! The directory: what its files say, and whether they have changed.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use holdfast_rtr::{Dataset, Exceptions};
use holdfast_rtr_wire::{MOST_PROVIDERS, Record};
use holdfast_tls::keys::{self, Item};
use holdfast_types::{Asn, Aspa, RouterKey, Ski};

use crate::json;

/// Octets of a file with one key.
const LONGEST_KEY: u64 = 64 * 1024;
/// Octets of a file with many records: all VRPs of 2026 have 80 MB.
const LONGEST_JSON: u64 = 1 << 30;

/// What is in a file.
#[derive(Debug)]
enum Content {
    Keys(Vec<RouterKey>),
    Records(Dataset),
    /// A SLURM file, as text: files are looked at together.
    Exceptions(String),
}

/// What changes with a file's contents: size, times, number.
type Stamp = (u64, i64, i64, i64, i64, u64);

#[derive(Clone, Debug)]
struct Seen {
    stamp: Stamp,
    content: Arc<Result<Content, String>>,
}

/// A directory, and what was found in it the last time.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    files: BTreeMap<PathBuf, Seen>,
}

/// Files that cannot be used, each with what is wrong.
pub(crate) type Broken = Vec<(PathBuf, String)>;

impl Folder {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, files: BTreeMap::new() }
    }

    /// Looks at it. `None`: nothing has changed since the last time. Files that are as they were are not read again.
    ///
    /// # Errors
    /// Those files that cannot be used, of which there may be one that was no better the last time; then nothing of what
    /// has changed is to be used, as nobody knows what belongs together.
    pub(crate) fn look(&mut self) -> Option<Result<Dataset, Broken>> {
        let found = match self.files_now() {
            Ok(found) => found,
            Err(error) => return Some(Err(vec![(self.path.clone(), error.to_string())])),
        };
        let as_before = |(old, new): (&PathBuf, &PathBuf)| old == new && self.files[old].stamp == found[new];
        if !self.files.is_empty()
            && self.files.len() == found.len()
            && self.files.keys().zip(found.keys()).all(as_before)
        {
            return None;
        }
        let mut files = BTreeMap::new();
        for (path, stamp) in found {
            let seen = match self.files.entry(path.clone()) {
                Entry::Occupied(seen) if seen.get().stamp == stamp => seen.get().clone(),
                _ => Seen { stamp, content: Arc::new(read(&path)) },
            };
            files.insert(path, seen);
        }
        self.files = files;
        Some(self.put_together())
    }

    fn files_now(&self) -> io::Result<BTreeMap<PathBuf, Stamp>> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            if kind(&path).is_none() {
                continue;
            }
            // One that has gone meanwhile is not there.
            let Ok(data) = fs::metadata(&path) else { continue };
            if data.is_file() {
                let times = (data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec());
                found.insert(path, (data.size(), times.0, times.1, times.2, times.3, data.ino()));
            }
        }
        Ok(found)
    }

    fn put_together(&self) -> Result<Dataset, Broken> {
        let mut all = Dataset::default();
        let (mut exceptions, mut broken) = (Vec::new(), Vec::new());
        for (path, seen) in &self.files {
            match &*seen.content {
                Ok(Content::Keys(keys)) => all.extend(keys.iter().cloned().map(Record::RouterKey)),
                Ok(Content::Records(records)) => join(&mut all, records),
                Ok(Content::Exceptions(text)) => exceptions.push((path.to_string_lossy(), text)),
                Err(why) => broken.push((path.clone(), why.clone())),
            }
        }
        let files = exceptions.iter().map(|(name, text)| (&**name, text.as_str()));
        let exceptions = match Exceptions::parse(files) {
            Ok(exceptions) => exceptions,
            Err(error) => {
                broken.push((self.path.clone(), error.to_string()));
                return Err(broken);
            }
        };
        let said = exceptions.apply(&all);
        // Each file is within the bound, and all together may not be. No router could be told such a one.
        let too_many = said.aspas().filter(|aspa| aspa.providers().len() > MOST_PROVIDERS);
        broken.extend(too_many.map(|aspa| {
            let (customer, count) = (aspa.customer(), aspa.providers().len());
            let why = format!(
                "the ASPA of AS{customer} has {count} providers in all files, more than {MOST_PROVIDERS}"
            );
            (self.path.clone(), why)
        }));
        if broken.is_empty() { Ok(said) } else { Err(broken) }
    }
}

/// ASPAs of one customer in several files are taken together.
fn join(all: &mut Dataset, records: &Dataset) {
    all.extend(records.vrps().map(Record::Vrp));
    all.extend(records.router_keys().map(Record::RouterKey));
    for aspa in records.aspas() {
        let before = all.aspa(aspa.customer()).map_or(&[][..], Aspa::providers);
        let providers = aspa.providers().iter().chain(before).copied().collect();
        all.insert(Record::Aspa(Aspa::new(aspa.customer(), providers)));
    }
}

/// What a file is, by its name.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    Json,
    /// A public key of this AS, with this name.
    Spki(Asn, Ski),
    Certificate,
}

/// Of `holdfast keygen` come AS.SKI.WHAT.pem and .der, with WHAT `spki`, `certificate`, or what is nobody's business here.
fn kind(path: &Path) -> Option<Kind> {
    let name = path.file_name()?.to_str()?;
    let (stem, end) = name.rsplit_once('.')?;
    if name.starts_with('.') {
        return None;
    }
    match (end, stem.rsplit_once('.').map(|(_, what)| what)) {
        ("json", _) => return Some(Kind::Json),
        ("pem" | "der", Some("sec1" | "pkcs8" | "request")) => return None,
        _ => {}
    }
    let mut parts = name.split('.');
    let named =
        parts.next().and_then(|asn| asn.parse().ok()).zip(parts.next().and_then(|ski| ski.parse().ok()));
    match (named, &parts.collect::<Vec<_>>()[..]) {
        (Some((asn, ski)), [] | ["pem" | "der"] | ["spki", "pem" | "der"]) => Some(Kind::Spki(asn, ski)),
        _ => matches!(end, "pem" | "der" | "cer" | "crt").then_some(Kind::Certificate),
    }
}

fn read(path: &Path) -> Result<Content, String> {
    match kind(path).ok_or("it has another name now")? {
        Kind::Json => of_json(contents(path, LONGEST_JSON)?),
        Kind::Spki(asn, ski) => {
            let items = keys::read(&contents(path, LONGEST_KEY)?).map_err(|error| error.to_string())?;
            let spki = items.into_iter().find_map(|item| match item {
                Item::PublicKey(der) => Some(der),
                _ => None,
            });
            let spki = spki.ok_or("there is no public key in it")?;
            Ok(Content::Keys(vec![RouterKey { asn, ski, spki }]))
        }
        Kind::Certificate => {
            let certificates =
                keys::certificates(&contents(path, LONGEST_KEY)?).map_err(|error| error.to_string())?;
            let keys = certificates.iter().map(|der| keys::router_keys(der));
            let keys: Vec<_> = keys.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
            Ok(Content::Keys(keys.into_iter().flatten().collect()))
        }
    }
}

fn of_json(text: Vec<u8>) -> Result<Content, String> {
    if is_slurm(&text) {
        return String::from_utf8(text).map(Content::Exceptions).map_err(|error| error.to_string());
    }
    json::read(&text).map(Content::Records)
}

/// A SLURM file has all three, and no other file has any. Who looks for one only takes a slip of the pen in it for a file
/// of another kind. Also one that says a member twice, which is for its own reader to refuse.
fn is_slurm(text: &[u8]) -> bool {
    let members = ["slurmVersion", "validationOutputFilters", "locallyAddedAssertions"];
    serde_json::from_slice::<BTreeMap<String, serde::de::IgnoredAny>>(text)
        .is_ok_and(|object| members.iter().any(|member| object.contains_key(*member)))
}

fn contents(path: &Path, longest: u64) -> Result<Vec<u8>, String> {
    let mut octets = Vec::new();
    let too_long = || format!("it is longer than {longest} octets");
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    if file.metadata().map_err(|error| error.to_string())?.len() > longest {
        return Err(too_long());
    }
    // It may grow meanwhile.
    let length = file.take(longest + 1).read_to_end(&mut octets).map_err(|error| error.to_string())?;
    if length as u64 > longest { Err(too_long()) } else { Ok(octets) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_exceptions_are_told_apart_also_by_a_member_that_is_there_twice() {
        for (text, expected) in [
            (r#"{"slurmVersion": 1, "validationOutputFilters": {}}"#, true),
            (r#"{"slurmVersion": 1, "slurmVersion": 1}"#, true),
            (r#"{"roas": [{"slurmVersion": 1}]}"#, false),
            (r#"["slurmVersion"]"#, false),
        ] {
            assert_eq!(is_slurm(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn files_are_what_their_names_say() {
        let ski = "3F2AF2C1A03AB5E5D4B4C1F8B4C0B2C9D4F1E8A7";
        let key = Some(Kind::Spki(Asn(64496), ski.parse().unwrap()));
        for (name, expected) in [
            (format!("64496.{ski}"), key),
            (format!("64496.{ski}.pem"), key),
            (format!("64496.{ski}.spki.der"), key),
            (format!("64496.{ski}.certificate.pem"), Some(Kind::Certificate)),
            ("router.cer".into(), Some(Kind::Certificate)),
            ("vrps.json".into(), Some(Kind::Json)),
            (format!("64496.{ski}.sec1.pem"), None),
            (format!("64496.{ski}.pkcs8.der"), None),
            (format!("64496.{ski}.request.pem"), None),
            (".vrps.json".into(), None),
            ("vrps.json~".into(), None),
            ("README".into(), None),
        ] {
            assert_eq!(kind(Path::new(&name)), expected, "{name}");
        }
    }

    /// A directory with these JSON files, put together.
    fn together(files: &[&str]) -> Result<Dataset, Broken> {
        let seen = |(number, text): (usize, &&str)| {
            let content = Arc::new(of_json(text.as_bytes().to_vec()));
            (PathBuf::from(format!("{number}.json")), Seen { stamp: (0, 0, 0, 0, 0, 0), content })
        };
        Folder { path: "keys".into(), files: files.iter().enumerate().map(seen).collect() }.put_together()
    }

    #[test]
    fn an_aspa_that_no_router_could_be_told_is_refused_with_all_files() {
        let aspa = |providers: std::ops::Range<usize>| {
            let providers: Vec<_> = providers.collect();
            format!(r#"{{"aspas": [{{"customer_asid": 64496, "providers": {providers:?}}}]}}"#)
        };
        let (one, two) = (aspa(1..9001), aspa(9001..MOST_PROVIDERS + 1));
        assert_eq!(together(&[&one, &two]).map(|all| all.len()), Ok(1));
        let broken = together(&[&one, &two, &aspa(20_000..20_001)]).unwrap_err();
        let told = format!("the ASPA of AS64496 has {} providers in all files", MOST_PROVIDERS + 1);
        assert!(broken.len() == 1 && broken[0].1.starts_with(&told), "{broken:?}");
    }

    #[test]
    fn a_slip_of_the_pen_does_not_leave_a_slurm_file_out() {
        let slurm = r#"{"slurmVersion": 1, "validationOutputFilters": {"prefixFilters": [], "bgpsecFilters": []},
            "locallyAddedAssertions": {"prefixAssertions": [], "bgpsecAssertions": []}}"#;
        assert!(together(&[slurm]).is_ok());
        for (wrong, told) in [
            (slurm.replace("slurmVersion", "slurmversion"), "`slurmVersion` is missing"),
            (slurm.replace(r#"{"slurmV"#, r#"{"slurmVersion": 1, "slurmV"#), "slurmVersion"),
            (slurm.replace("validationOutputFilters", "filters"), "`validationOutputFilters` is missing"),
        ] {
            let broken = together(&[&wrong]).expect_err(&wrong);
            assert!(broken[0].1.contains(told), "{wrong}: {broken:?}");
        }
    }
}
