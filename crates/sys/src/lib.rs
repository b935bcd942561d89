//! What the kernel offers and std does not: socket options, descriptors, privileges
