//! What is special to QUIC by s2n-quic: its verdicts, its limits, and who is refused in which words. What all backends have
//! in common is in `backends`.

mod both;
mod door;
mod hostile;
mod identity;
mod support;
