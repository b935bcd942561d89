//! Routing policy: terms compiled to bounded programs
