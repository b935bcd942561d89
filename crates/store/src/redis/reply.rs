//! Replies of the server (RESP2), as they come in pieces.

use crate::Failure;

/// Octets of a line at most: of a status, an error or a number.
pub const LONGEST_LINE: usize = 1024;

/// Octets of a bulk string that are kept at most: no value and no chunk is longer.
pub const LONGEST_BULK: usize = 1 << 20;

/// Octets of a bulk string at most: as much as a server takes by default.
pub const LONGEST_SKIPPED: usize = 512 << 20;

/// Arrays in each other at most.
pub const MOST_DEPTH: usize = 4;

/// Elements of a reply at most, those of arrays in it among them.
pub const MOST_ELEMENTS: usize = 8192;

/// Octets of a reply that are kept at most, with what each element takes here.
pub const MOST_REPLY: usize = 4 << 20;

/// Octets at most that came and are no whole element yet. [`Replies::push`] takes no more.
pub const MOST_UNREAD: usize = LONGEST_BULK + (1 << 20);

/// What an element takes besides its octets.
const ELEMENT: usize = size_of::<Reply>();

/// Octets of the text of an error that are kept.
const SHOWN: usize = 200;

/// A reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// A simple string.
    Status(Vec<u8>),
    /// The server refuses or cannot.
    Error(Failure),
    /// A number.
    Integer(i64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// There is none.
    Nil,
    /// A bulk string that is not kept: it has more than [`LONGEST_BULK`] octets, or the reply more than [`MOST_REPLY`].
    TooLong,
    /// Replies in a reply.
    Array(Vec<Self>),
}

/// Reads replies from octets that come in pieces. It keeps no more than [`MOST_REPLY`] and [`MOST_UNREAD`] octets, whatever
/// comes.
#[derive(Default, Debug)]
pub struct Replies {
    unread: Vec<u8>,
    /// What of it was read.
    read: usize,
    /// Behind it no end of a line was found so far.
    searched: usize,
    /// Arrays that are not whole, and how many elements they lack.
    open: Vec<(usize, Vec<Reply>)>,
    elements: usize,
    octets: usize,
    /// Octets that are still to come of a bulk string that is not kept.
    skipped: Option<usize>,
    broken: Option<&'static str>,
}

enum Element {
    Whole(Reply),
    /// An array of at least one element begins.
    Opens(usize),
}

impl Replies {
    /// Nothing came so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// What came. Whoever takes all replies between two calls, and reads at most 1 MiB at once, stays within the bound.
    ///
    /// # Errors
    /// [`Failure::Broken`], also from all later calls: more than [`MOST_UNREAD`] octets are unread.
    pub fn push(&mut self, octets: &[u8]) -> Result<(), Failure> {
        if self.unread.len() - self.read + octets.len() > MOST_UNREAD {
            self.broken.get_or_insert("too many octets at once");
        }
        self.broken.map_or(Ok(()), |why| Err(Failure::Broken(why)))?;
        // At most as much is moved as came since the last time.
        if self.read > 0 && self.read >= self.unread.len() / 2 {
            self.unread.drain(..self.read);
            self.searched = self.searched.saturating_sub(self.read);
            self.read = 0;
        }
        self.unread.extend_from_slice(octets);
        Ok(())
    }

    /// The next reply, if all of it is there.
    ///
    /// # Errors
    /// [`Failure::Broken`], also from all later calls: what came is no reply, or one that is too long.
    pub fn take(&mut self) -> Result<Option<Reply>, Failure> {
        self.broken.map_or(Ok(()), |why| Err(Failure::Broken(why)))?;
        self.advance().map_err(|why| {
            self.broken = Some(why);
            self.unread = Vec::new();
            self.open = Vec::new();
            self.read = 0;
            Failure::Broken(why)
        })
    }

    fn advance(&mut self) -> Result<Option<Reply>, &'static str> {
        while let Some(element) = self.element()? {
            let mut reply = match element {
                Element::Opens(_) if self.open.len() == MOST_DEPTH => {
                    return Err("arrays are nested too deep");
                }
                Element::Opens(elements) => {
                    self.open.push((elements, Vec::new()));
                    continue;
                }
                Element::Whole(reply) => reply,
            };
            loop {
                let Some((lacking, mut elements)) = self.open.pop() else {
                    (self.elements, self.octets) = (0, 0);
                    return Ok(Some(reply));
                };
                elements.push(reply);
                if lacking > 1 {
                    self.open.push((lacking - 1, elements));
                    break;
                }
                reply = Reply::Array(elements);
            }
        }
        Ok(None)
    }

    /// The next element, if all of it is there; else nothing of it counts as read.
    fn element(&mut self) -> Result<Option<Element>, &'static str> {
        if let Some(left) = self.skipped {
            return self.skip(left);
        }
        let Some((line, behind)) = self.line()? else { return Ok(None) };
        let (&kind, text) = line.split_first().ok_or("an empty line")?;
        let length = text.len();
        let mut next = behind;
        let element = match kind {
            b'+' => Element::Whole(Reply::Status(text.to_vec())),
            b'-' => Element::Whole(Reply::Error(failure(text))),
            b':' => Element::Whole(Reply::Integer(integer(text).ok_or("no number")?)),
            b'$' => match integer(text).ok_or("no length")? {
                -1 => Element::Whole(Reply::Nil),
                length => {
                    let length = usize::try_from(length).map_err(|_| "a negative length")?;
                    if length > LONGEST_SKIPPED {
                        return Err("a string is too long");
                    }
                    if length > LONGEST_BULK || self.octets + length + ELEMENT > MOST_REPLY {
                        self.read = behind;
                        return self.skip(length);
                    }
                    let Some(octets) = self.unread.get(behind..behind + length + 2) else { return Ok(None) };
                    let octets =
                        octets.strip_suffix(b"\r\n").ok_or("a string does not end where it should")?;
                    next = behind + length + 2;
                    Element::Whole(Reply::Bulk(octets.to_vec()))
                }
            },
            b'*' => match integer(text).ok_or("no length")? {
                -1 => Element::Whole(Reply::Nil),
                0 => Element::Whole(Reply::Array(Vec::new())),
                elements => match usize::try_from(elements) {
                    Ok(elements) if elements <= MOST_ELEMENTS => Element::Opens(elements),
                    Ok(_) => return Err("an array is too long"),
                    Err(_) => return Err("a negative length"),
                },
            },
            _ => return Err("no type of RESP2"),
        };
        let taken = match &element {
            Element::Whole(Reply::Bulk(octets)) => octets.len(),
            Element::Whole(_) | Element::Opens(_) => length,
        };
        self.count(taken)?;
        self.read = next;
        self.searched = next;
        Ok(Some(element))
    }

    /// Reads on in a bulk string that is not kept, and of which so many octets are still to come.
    fn skip(&mut self, left: usize) -> Result<Option<Element>, &'static str> {
        let here = left.min(self.unread.len() - self.read);
        self.read += here;
        (self.searched, self.skipped) = (self.read, Some(left - here));
        let Some(end) = self.unread.get(self.read..self.read + 2).filter(|_| here == left) else {
            return Ok(None);
        };
        if end != b"\r\n" {
            return Err("a string does not end where it should");
        }
        self.count(0)?;
        self.read += 2;
        (self.searched, self.skipped) = (self.read, None);
        Ok(Some(Element::Whole(Reply::TooLong)))
    }

    /// One element more is read, with so many octets.
    fn count(&mut self, octets: usize) -> Result<(), &'static str> {
        self.elements += 1;
        self.octets += octets + ELEMENT;
        if self.elements > MOST_ELEMENTS || self.octets > MOST_REPLY {
            Err("a reply is too long")
        } else {
            Ok(())
        }
    }

    /// The line that begins what is unread, and where the octets behind it are.
    fn line(&mut self) -> Result<Option<(&[u8], usize)>, &'static str> {
        let from = self.searched.max(self.read);
        let found = self.unread[from..].iter().position(|octet| *octet == b'\n').map(|at| from + at);
        let end = found.unwrap_or(self.unread.len());
        if end - self.read > LONGEST_LINE {
            return Err("a line is too long");
        }
        let Some(end) = found else {
            self.searched = end;
            return Ok(None);
        };
        self.searched = end;
        let line = self.unread[self.read..end].strip_suffix(b"\r").ok_or("a line does not end with CR LF")?;
        Ok(Some((line, end + 1)))
    }
}

fn integer(text: &[u8]) -> Option<i64> {
    let is_number = text.strip_prefix(b"-").unwrap_or(text).first().is_some_and(u8::is_ascii_digit);
    str::from_utf8(text).ok().filter(|_| is_number)?.parse().ok()
}

/// What an error of the server means.
fn failure(text: &[u8]) -> Failure {
    let code = text.split(|octet| *octet == b' ').next().unwrap_or(text);
    match code {
        b"OOM" => Failure::OutOfMemory,
        b"READONLY" => Failure::ReadOnly,
        b"MASTERDOWN" => Failure::MasterDown,
        b"LOADING" => Failure::Loading,
        b"BUSY" => Failure::Busy,
        b"NOAUTH" => Failure::NoAuth,
        b"WRONGPASS" => Failure::WrongPassword,
        b"NOPERM" => Failure::NoPermission,
        b"WRONGTYPE" => Failure::OtherData,
        b"NOSCRIPT" => Failure::NoScript,
        b"NOREPLICAS" => Failure::NoReplicas,
        b"MISCONF" => Failure::CannotSave,
        b"MOVED" | b"ASK" | b"CLUSTERDOWN" | b"TRYAGAIN" | b"CROSSSLOT" => Failure::Cluster,
        _ => {
            let shown = &text[..text.len().min(SHOWN)];
            Failure::Other(shown.escape_ascii().to_string())
        }
    }
}
