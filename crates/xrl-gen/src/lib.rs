//! Generates XRL stubs from .proto files (build-time only)
