//! The BGP pipeline: stages and tables from the received UPDATE to the one sent
