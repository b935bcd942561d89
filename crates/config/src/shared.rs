//! The part of a configuration that all routers have which may have the same sessions, as text.
//!
//! ```text
//!  text of one router ── Shared::of ──> number, text of the shared tables
//!                                            │
//!  text of another one ── Shared::put_into <─┘ ──> its text, with these tables in the place of its own
//! ```
//! Comments go along. The number is that of what is said: comments, order of keys and forms of TOML make no difference.

use std::hash::{BuildHasher, Hasher};

use holdfast_types::HashKey;
use toml_edit::{DocumentMut, InlineTable, Item, Table, TableLike, TomlError, Value};

/// The tables that are shared. What else a configuration has is about one router: its interfaces, listeners, keys, and logs.
pub const TABLES: [&str; 7] =
    ["router", "vrf", "bgp", "policy", "prefix-set", "community-set", "as-path-set"];

/// Keys whose values are no part of the number, unless somebody has a key for that.
const SECRETS: [&str; 1] = ["md5"];

/// What routers share.
#[derive(Clone, PartialEq, Eq)]
pub struct Shared {
    /// What tells two of them apart. The same in every build.
    pub number: u64,
    /// TOML, with the secrets that are in it.
    pub text: String,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Shared {
    /// What is shared of a configuration. With a `key` secrets count for the number, too: without it nobody learns anything of
    /// them.
    ///
    /// # Errors
    /// It is no TOML.
    pub fn of(text: &str, key: Option<[u64; 2]>) -> Result<Self, TomlError> {
        let mut document: DocumentMut = text.parse()?;
        document.as_table_mut().retain(|name, _| TABLES.contains(&name));
        plain(&mut document);
        // What stands behind the last table is about no table.
        document.set_trailing("");
        let mut feed = Feed { hasher: HashKey::new(key.unwrap_or_default()).build_hasher(), key };
        feed.table(document.as_table());
        Ok(Self { number: feed.hasher.finish(), text: document.to_string() })
    }

    /// The text of another router with this in the place of what it shares.
    ///
    /// # Errors
    /// One of both is no TOML.
    pub fn put_into(&self, text: &str) -> Result<String, TomlError> {
        let mut own: DocumentMut = text.parse()?;
        own.as_table_mut().retain(|name, _| !TABLES.contains(&name));
        plain(&mut own);
        // A text of somebody else: nothing but these tables is taken.
        let mut shared: DocumentMut = self.text.parse()?;
        shared.as_table_mut().retain(|name, _| TABLES.contains(&name));
        plain(&mut shared);
        let (own, shared) = (own.to_string(), shared.to_string());
        Ok(format!("{}\n\n{}\n", shared.trim(), own.trim()))
    }
}

/// Tables at the top get headers of their own, whatever form they have: so texts can stand behind each other.
fn plain(document: &mut DocumentMut) {
    for (mut key, item) in document.as_table_mut().iter_mut() {
        // Blanks around a key are none of a header.
        key.leaf_decor_mut().clear();
        if let Some(table) = item.as_table_mut() {
            table.set_dotted(false);
            continue;
        }
        *item = match std::mem::take(item).into_array_of_tables() {
            Ok(tables) => Item::ArrayOfTables(tables),
            Err(item) => item.into_table().map_or_else(|item| item, Item::Table),
        };
    }
}

/// What is hashed. Each value begins with its kind, and what has parts says how many: no two read the same.
struct Feed<H> {
    hasher: H,
    key: Option<[u64; 2]>,
}

impl<H: Hasher> Feed<H> {
    fn table(&mut self, table: &dyn TableLike) {
        let mut rows: Vec<(&str, &Item)> = table.iter().filter(|(name, _)| self.counts(name)).collect();
        rows.sort_unstable_by_key(|(name, _)| *name);
        self.begin(b't', rows.len());
        for (name, item) in rows {
            self.octets(b'k', name.as_bytes());
            self.item(item);
        }
    }

    fn counts(&self, name: &str) -> bool {
        self.key.is_some() || !SECRETS.contains(&name)
    }

    fn item(&mut self, item: &Item) {
        match item {
            Item::None => self.begin(b'n', 0),
            Item::Value(value) => self.value(value),
            Item::Table(table) => self.table(table),
            Item::ArrayOfTables(tables) => {
                self.begin(b'a', tables.len());
                tables.iter().for_each(|table: &Table| self.table(table));
            }
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.octets(b's', text.value().as_bytes()),
            Value::Integer(number) => self.octets(b'i', &number.value().to_le_bytes()),
            Value::Float(number) => self.octets(b'f', &number.value().to_bits().to_le_bytes()),
            Value::Boolean(is) => self.octets(b'b', &[u8::from(*is.value())]),
            Value::Datetime(moment) => self.octets(b'd', moment.value().to_string().as_bytes()),
            Value::Array(values) => {
                self.begin(b'a', values.len());
                values.iter().for_each(|value| self.value(value));
            }
            Value::InlineTable(table) => self.table(table as &InlineTable),
        }
    }

    fn octets(&mut self, kind: u8, octets: &[u8]) {
        self.begin(kind, octets.len());
        self.hasher.write(octets);
    }

    fn begin(&mut self, kind: u8, length: usize) {
        self.hasher.write(&[kind]);
        self.hasher.write(&(length as u64).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# of this host\n[log]\nlevel = \"info\"\n\n# who we are\n[router]\nid = \"10.0.0.1\"\nasn = 65001\n\n\
        [bgp]\n[[bgp.peer]]\nname = \"a\"\nmd5 = \"x\"\n[metrics]\n[[policy]]\nname = \"p\"\nterm = [{ then = \"accept\" }]\n";

    fn number(text: &str, key: Option<[u64; 2]>) -> u64 {
        Shared::of(text, key).expect("TOML").number
    }

    #[test]
    fn the_form_makes_no_difference_and_all_that_is_said_does() {
        let same = "[bgp]\npeer = [{ md5 = \"x\", name = \"a\" }]\n[[policy]]\nname = \"p\"\n[[policy.term]]\nthen = \"accept\"\n\
            [router] # here\nasn = 65_001\nid = \"10.0.0.1\"\n";
        assert_eq!(number(TEXT, None), number(same, None));
        let dotted = format!(
            "router.id = \"10.0.0.1\"\nrouter.asn = 65001\n{}",
            TEXT.replace("[router]\nid = \"10.0.0.1\"\nasn = 65001\n", "")
        );
        assert_eq!(number(TEXT, None), number(&dotted, None));
        // It is in files and stores that other builds read.
        assert_eq!(number("", None), 0x0c5e_df56_792b_660e);
        for (old, new) in [
            ("65001", "65002"),
            ("[bgp]", "[bgp]\nhold-time = 9"),
            ("name = \"a\"", "name = \"b\""),
            ("accept", "reject"),
            ("asn = 65001", "asn = \"65001\""),
            ("[[bgp.peer]]", "[[bgp.peer]]\n[[bgp.peer]]"),
        ] {
            assert_ne!(number(TEXT, None), number(&TEXT.replace(old, new), None), "{new}");
        }
        // Of one router.
        assert_eq!(number(TEXT, None), number(&TEXT.replace("info", "debug"), None));
    }

    #[test]
    fn a_secret_counts_only_for_who_has_a_key() {
        let other = TEXT.replace("\"x\"", "\"y\"");
        assert_eq!(number(TEXT, None), number(&other, None));
        assert_ne!(number(TEXT, Some([1, 2])), number(&other, Some([1, 2])));
        assert_ne!(number(TEXT, Some([1, 2])), number(TEXT, Some([1, 3])));
        assert!(!format!("{:?}", Shared::of(TEXT, None)).contains("md5"));
    }

    #[test]
    fn what_is_shared_goes_over_and_the_rest_stays() {
        let shared = Shared::of(TEXT, None).expect("TOML");
        assert!(shared.text.contains("# who we are") && !shared.text.contains("level"), "{}", shared.text);
        for theirs in [
            "log.level = \"debug\"\nrouter.id = \"10.9.9.9\"\n[[vrf]]\nname = \"old\"\n[xrl]\nlisten = [\"127.0.0.1:4400\"]\n",
            "router = { id = \"10.9.9.9\" }\nlog = { level = \"debug\" }\nxrl = { listen = [\"127.0.0.1:4400\"] }\n",
        ] {
            let merged = shared.put_into(theirs).expect("TOML");
            assert_eq!(number(&merged, None), shared.number, "{merged}");
            let merged: DocumentMut = merged.parse().expect("TOML");
            assert_eq!(merged["log"]["level"].as_str(), Some("debug"), "{merged}");
            assert_eq!(merged["xrl"]["listen"][0].as_str(), Some("127.0.0.1:4400"), "{merged}");
            assert!(!merged.contains_key("metrics"), "{merged}");
        }
        // What somebody else wants of this router in other tables is not listened to.
        let more = Shared { text: format!("{}\n[log]\nlevel = \"trace\"\n", shared.text), ..shared };
        let merged = more.put_into("[log]\nlevel = \"warn\"\n").expect("TOML");
        assert!(merged.contains("warn") && !merged.contains("trace"), "{merged}");
        more.put_into("[log").expect_err("no TOML");
    }

    #[test]
    fn what_goes_over_twice_is_there_once() {
        let theirs = "# head\n[log]\nlevel = \"warn\" # loud\n# ours\n[router]\nasn = 1\n\n# our end\n";
        let shared = Shared::of(&format!("{TEXT}\n# their end\n"), None).expect("TOML");
        let once = shared.put_into(theirs).expect("TOML");
        assert_eq!(shared.put_into(&once).expect("TOML"), once);
        assert!(
            once.contains("# head") && once.contains("# our end") && !once.contains("# their end"),
            "{once}"
        );
        assert_eq!(Shared::of(&once, None).expect("TOML").text.trim(), shared.text.trim());
    }
}
