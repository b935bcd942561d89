mod corpora;
mod packets;
