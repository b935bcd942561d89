//! Channels, nodes, the Finder and the text form, as their users see them.

mod channel;
mod exercise;
mod finder;
mod hostile;
mod readers;
mod tcp;
mod text;
