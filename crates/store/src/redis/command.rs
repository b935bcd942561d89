//! Commands on the wire: an array of bulk strings.

/// A number in decimal digits.
struct Digits {
    digits: [u8; 20],
    start: usize,
}

impl Digits {
    fn of(mut number: u64) -> Self {
        let mut digits = [b'0'; 20];
        let mut start = 20;
        while start == 20 || number > 0 {
            start -= 1;
            digits[start] = b'0' + (number % 10) as u8;
            number /= 10;
        }
        Self { digits, start }
    }

    fn as_slice(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

/// A command that is being written.
pub(super) struct Command<'a>(&'a mut Vec<u8>);

impl<'a> Command<'a> {
    /// A command of so many words, its name among them.
    pub(super) fn new(out: &'a mut Vec<u8>, words: usize) -> Self {
        let command = Self(out);
        command.0.push(b'*');
        command.0.extend_from_slice(Digits::of(words as u64).as_slice());
        command.0.extend_from_slice(b"\r\n");
        command
    }

    pub(super) fn word(&mut self, word: &[u8]) -> &mut Self {
        self.word_of(&[word])
    }

    /// A word in parts.
    pub(super) fn word_of(&mut self, parts: &[&[u8]]) -> &mut Self {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.0.push(b'$');
        self.0.extend_from_slice(Digits::of(length as u64).as_slice());
        self.0.extend_from_slice(b"\r\n");
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
        self.0.extend_from_slice(b"\r\n");
        self
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.word(Digits::of(number).as_slice())
    }

    /// With all twenty digits, so that the order of the text is that of the numbers.
    pub(super) fn padded(&mut self, number: u64) -> &mut Self {
        self.word(&Digits::of(number).digits)
    }

    pub(super) fn hexadecimal(&mut self, number: u64) -> &mut Self {
        self.word(format!("{number:016x}").as_bytes())
    }
}

/// `AUTH`: as this user, or as the default one.
pub fn authenticate(user: Option<&str>, password: &str, out: &mut Vec<u8>) {
    let mut command = Command::new(out, 2 + usize::from(user.is_some()));
    command.word(b"AUTH");
    if let Some(user) = user {
        command.word(user.as_bytes());
    }
    command.word(password.as_bytes());
}

/// `PING`, to be answered with [`Reply::Status`].
///
/// [`Reply::Status`]: super::Reply::Status
pub fn ping(out: &mut Vec<u8>) {
    Command::new(out, 1).word(b"PING");
}

/// `WAIT`: until so many replicas have all that this connection has written, or for so long. [`confirmed`] reads the reply.
/// The server does not read the commands behind it meanwhile. Zero milliseconds are for ever.
///
/// [`confirmed`]: super::confirmed
pub fn wait(replicas: u32, milliseconds: u32, out: &mut Vec<u8>) {
    Command::new(out, 3).word(b"WAIT").number(replicas.into()).number(milliseconds.into());
}
