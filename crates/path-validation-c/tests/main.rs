//! What programs in C get: the header, and the library they are linked with.

mod c;
mod header;
