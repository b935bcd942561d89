//! Octets from readable text.

/// Reads hexadecimal digits; blanks are for the reader.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let (pairs, []) = digits.as_chunks::<2>() else { panic!("half an octet in `{text}`") };
    let octet = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16).expect("hex");
    pairs.iter().map(octet).collect()
}
