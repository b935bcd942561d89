//! BGP-4 messages and attributes: bytes to values and back, RFC 7606 classification
