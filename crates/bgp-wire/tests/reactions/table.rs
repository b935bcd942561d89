//! Reads `reactions.txt`, for this crate's test and for that of a whole session.

/// Where the peer is, and what the session has agreed on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum From {
    Ebgp,
    TwoOctetEbgp,
    EbgpWithSets,
    EbgpWithV6Hops,
    Ibgp,
    Confed,
    Member,
}

/// What becomes of the UPDATE.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reaction {
    Fine,
    /// Attributes of this type are left out.
    Discard(u8),
    /// Its routes count as withdrawn because of this attribute.
    Withdraw(u8),
    /// Code and subcode of the NOTIFICATION.
    Reset(u8, u8),
}

/// One row.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its line in the file, to be found again.
    pub(crate) line: usize,
    pub(crate) from: From,
    /// The body of the UPDATE.
    pub(crate) body: Vec<u8>,
    /// Prefixes of IPv4 and of IPv6 are announced in it, as far as they can be found.
    pub(crate) announces: [bool; 2],
    pub(crate) reaction: Reaction,
    pub(crate) source: String,
}

const MP_REACH: &str = "800e1c 00020110 20010db8000000010000000000000002 00 3020010db80113";
const MP_UNREACH: &str = "800f0a 000201 3020010db80113";
const NLRI: &str = "18cb0071";

pub(crate) fn rows() -> Vec<Row> {
    let text = include_str!("reactions.txt").lines().enumerate();
    text.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(index, line)| row(index + 1, line))
        .collect()
}

fn row(line: usize, text: &str) -> Row {
    let cells: Vec<_> = text.split('|').map(str::trim).collect();
    let &[from, carries, attributes, reaction, source, _] = &cells[..] else {
        panic!("line {line}: six cells, not {}", cells.len())
    };
    let from = match from {
        "ebgp" => From::Ebgp,
        "ebgp2" => From::TwoOctetEbgp,
        "sets" => From::EbgpWithSets,
        "v6hop" => From::EbgpWithV6Hops,
        "ibgp" => From::Ibgp,
        "confed" => From::Confed,
        "member" => From::Member,
        other => panic!("line {line}: from `{other}`"),
    };
    let body = match carries {
        "body" => octets(attributes),
        _ => body(carries, attributes, from),
    };
    let announces = [matches!(carries, "v4" | "both"), matches!(carries, "v6" | "both")];
    Row { line, from, body, announces, reaction: read_reaction(line, reaction), source: source.to_owned() }
}

fn read_reaction(line: usize, text: &str) -> Reaction {
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("line {line}: `{text}`"));
    match text.split_once(' ') {
        None if text == "fine" => Reaction::Fine,
        Some(("discard", code)) => Reaction::Discard(number(code)),
        Some(("withdraw", code)) => Reaction::Withdraw(number(code)),
        Some(("reset", codes)) => {
            let (code, subcode) = codes.split_once('/').unwrap_or_else(|| panic!("line {line}: `{codes}`"));
            Reaction::Reset(number(code), number(subcode))
        }
        _ => panic!("line {line}: `{text}`"),
    }
}

fn body(carries: &str, attributes: &str, from: From) -> Vec<u8> {
    let attributes = change(good(carries, from), attributes);
    let nlri = if matches!(carries, "v4" | "both") { octets(NLRI) } else { Vec::new() };
    [&[0, 0][..], &(attributes.len() as u16).to_be_bytes(), &attributes, &nlri].concat()
}

/// An UPDATE in which nothing is wrong: its attributes.
fn good(carries: &str, from: From) -> Vec<Vec<u8>> {
    let mp = match carries {
        "v6" | "both" => MP_REACH,
        "gone" => MP_UNREACH,
        _ => "",
    };
    let path = match from {
        From::Ebgp | From::EbgpWithSets | From::EbgpWithV6Hops => "40020a 0202 0000fde9 0000fdf2",
        From::TwoOctetEbgp => "400206 0202 fde9 fdf2",
        From::Ibgp => "400206 0201 0000fdf2",
        From::Confed | From::Member => "40020c 0301 0000fc01 0201 0000fdf2",
    };
    let next_hop = if matches!(carries, "v6" | "gone") { "" } else { "400304 c0000201" };
    let local_pref =
        if matches!(from, From::Ibgp | From::Confed | From::Member) { "400504 00000064" } else { "" };
    let all = [mp, "400101 00", path, next_hop, local_pref];
    all.into_iter().filter(|attribute| !attribute.is_empty()).map(octets).collect()
}

/// The attributes as a cell has them, from good ones.
fn change(mut attributes: Vec<Vec<u8>>, cell: &str) -> Vec<u8> {
    let is_sign = |word: &str| matches!(word, "good" | "only" | "+" | "=" | "-");
    let mut words = cell.split_whitespace().peekable();
    while let Some(sign) = words.next() {
        let mut operand = String::new();
        while let Some(word) = words.next_if(|word| !is_sign(word)) {
            operand.push_str(word);
            operand.push(' ');
        }
        match sign {
            "good" => {}
            "only" => attributes = vec![octets(&operand)],
            "+" => attributes.push(octets(&operand)),
            "=" => {
                let attribute = octets(&operand);
                let at = attributes.iter().position(|good| good[1] == attribute[1]);
                attributes[at.expect("a good one of that type")] = attribute;
            }
            "-" => {
                let code: u8 = operand.trim().parse().expect("a type code");
                attributes.retain(|attribute| attribute[1] != code);
            }
            other => panic!("`{other}` is no sign"),
        }
    }
    attributes.concat()
}

/// Octets of hexadecimal words; `N * WORD` is the word so many times.
fn octets(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let times = words.next_if_eq(&"*").map(|_| word.parse::<usize>().expect("a number of times"));
        let word = if times.is_some() { words.next().expect("a word") } else { word };
        let (pairs, []) = word.as_bytes().as_chunks::<2>() else { panic!("half an octet in `{word}`") };
        let octet =
            |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16).expect("hex");
        (0..times.unwrap_or(1)).for_each(|_| out.extend(pairs.iter().map(octet)));
    }
    out
}
