//! Opens the sockets under protocols: listeners and dialers with TCP-MD5 and GTSM
