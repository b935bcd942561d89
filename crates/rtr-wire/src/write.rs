//! To octets.

use std::net::IpAddr;

use holdfast_types::Vrp;

use crate::{ErrorReport, HEADER, LONGEST, Pdu, Record, Timing, Unwritable, Version, read::ANNOUNCE};

impl Pdu {
    /// Puts it at the end.
    ///
    /// # Errors
    /// There is no such PDU: then nothing was put there. Of an Error Report what is too long is left out.
    pub fn write(&self, version: Version, out: &mut Vec<u8>) -> Result<(), Unwritable> {
        if self.pdu_type().since() > version {
            return Err(Unwritable::Version(version));
        }
        let start = out.len();
        out.extend([version.octet(), self.pdu_type().octet()]);
        out.extend(self.field());
        out.extend([0; 4]);
        self.body(version, out);
        let length = out.len() - start;
        if length > LONGEST {
            out.truncate(start);
            return Err(Unwritable::TooLong);
        }
        out[start + 4..start + HEADER].copy_from_slice(&(length as u32).to_be_bytes());
        Ok(())
    }

    /// Third and fourth octet of the header.
    fn field(&self) -> [u8; 2] {
        match self {
            Self::SerialNotify { session, .. }
            | Self::SerialQuery { session, .. }
            | Self::CacheResponse { session }
            | Self::EndOfData { session, .. } => session.to_be_bytes(),
            Self::ErrorReport(report) => report.code.number().to_be_bytes(),
            Self::Announce(Record::RouterKey(_) | Record::Aspa(_)) => [ANNOUNCE, 0],
            Self::Announce(Record::Vrp(_)) | Self::Withdraw(_) | Self::ResetQuery | Self::CacheReset => {
                [0; 2]
            }
        }
    }

    fn body(&self, version: Version, out: &mut Vec<u8>) {
        match self {
            Self::SerialNotify { serial, .. } | Self::SerialQuery { serial, .. } => {
                out.extend(serial.0.to_be_bytes());
            }
            Self::ResetQuery | Self::CacheResponse { .. } | Self::CacheReset => {}
            Self::EndOfData { serial, timing, .. } => {
                out.extend(serial.0.to_be_bytes());
                if version > Version::V0 {
                    let Timing { refresh, retry, expire } = timing.unwrap_or(Timing::RECOMMENDED);
                    out.extend([refresh, retry, expire].iter().flat_map(|seconds| seconds.to_be_bytes()));
                }
            }
            Self::Announce(Record::Vrp(vrp)) => prefix(ANNOUNCE, *vrp, out),
            Self::Withdraw(Record::Vrp(vrp)) => prefix(0, *vrp, out),
            Self::Announce(Record::RouterKey(key)) | Self::Withdraw(Record::RouterKey(key)) => {
                out.extend(key.ski.0);
                out.extend(key.asn.0.to_be_bytes());
                out.extend(&key.spki);
            }
            Self::Announce(Record::Aspa(aspa)) => {
                out.extend(aspa.customer().0.to_be_bytes());
                out.extend(aspa.providers().iter().flat_map(|provider| provider.0.to_be_bytes()));
            }
            Self::Withdraw(Record::Aspa(aspa)) => out.extend(aspa.customer().0.to_be_bytes()),
            Self::ErrorReport(report) => error_report(report, out),
        }
    }
}

fn prefix(flags: u8, vrp: Vrp, out: &mut Vec<u8>) {
    out.extend([flags, vrp.prefix().length(), vrp.max_length(), 0]);
    match vrp.prefix().address() {
        IpAddr::V4(address) => out.extend(address.octets()),
        IpAddr::V6(address) => out.extend(address.octets()),
    }
    out.extend(vrp.asn().0.to_be_bytes());
}

fn error_report(report: &ErrorReport, out: &mut Vec<u8>) {
    let room = LONGEST - HEADER - 8;
    let mut text = report.text.len().min(room / 2);
    while !report.text.is_char_boundary(text) {
        text -= 1;
    }
    let pdu = report.pdu.len().min(room - text);
    for part in [&report.pdu[..pdu], &report.text.as_bytes()[..text]] {
        out.extend((part.len() as u32).to_be_bytes());
        out.extend(part);
    }
}
